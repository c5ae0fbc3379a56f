//! The grammar of label selectors, as apimachinery's lexer and parser have it, quirks included.
//!
//! One deviation: NUL, which ends apimachinery's input, is an illegal character here. A selector that
//! is cut short would select more than was asked for.

use std::collections::BTreeSet;

use super::{Operator, Requirement};
use crate::selector::rules::{label_key_problems, label_value_problems};

const OPERATORS: &str = "in, notin, =, ==, !=, gt, lt";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Identifier,
    /// `in`, `notin`: keywords in operator position, identifiers elsewhere.
    Word,
    Symbol,
    End,
}

#[derive(Clone, Copy)]
struct Token<'a> {
    kind: Kind,
    text: &'a str,
}

impl Token<'_> {
    fn is(self, symbol: &str) -> bool {
        self.kind == Kind::Symbol && self.text == symbol
    }

    fn is_name(self) -> bool {
        matches!(self.kind, Kind::Identifier | Kind::Word)
    }
}

struct Parser<'a> {
    rest: &'a str,
}

pub(super) fn requirements(text: &str) -> Result<Vec<Requirement>, String> {
    let mut parser = Parser { rest: text };
    let mut requirements = Vec::new();
    loop {
        let first = parser.peek();
        if first.kind == Kind::End {
            return Ok(requirements);
        }
        if !first.is_name() && !first.is("!") {
            return Err(format!("found '{}', expected: !, identifier, or 'end of string'", first.text));
        }
        let requirement =
            parser.requirement().map_err(|why| format!("unable to parse requirement: {why}"))?;
        requirements.push(requirement);
        let after = parser.next();
        if after.kind == Kind::End {
            return Ok(requirements);
        }
        if !after.is(",") {
            return Err(format!("found '{}', expected: ',' or 'end of string'", after.text));
        }
        let next = parser.peek();
        if !next.is_name() && !next.is("!") {
            return Err(format!("found '{}', expected: identifier after ','", next.text));
        }
    }
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        Parser { rest: self.rest }.next()
    }

    fn next(&mut self) -> Token<'a> {
        let text = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let is_symbol = |char: char| "=!(),><".contains(char);
        let (kind, len) = match text.chars().next() {
            None => (Kind::End, 0),
            Some(_) if text.starts_with("==") || text.starts_with("!=") => (Kind::Symbol, 2),
            Some(first) if is_symbol(first) => (Kind::Symbol, 1),
            Some(_) => {
                let ends = |char: char| is_symbol(char) || " \t\r\n".contains(char);
                let len = text.find(ends).unwrap_or(text.len());
                let keyword = matches!(&text[..len], "in" | "notin");
                (if keyword { Kind::Word } else { Kind::Identifier }, len)
            }
        };
        let (token, rest) = text.split_at(len);
        self.rest = rest;
        Token { kind, text: token }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let mut token = self.next();
        let negated = token.is("!");
        if negated {
            token = self.next();
        }
        if !token.is_name() {
            return Err(format!("found '{}', expected: identifier", token.text));
        }
        let key = token.text;
        let problems = label_key_problems(key);
        if !problems.is_empty() {
            // apimachinery passes no field path here, and prints it so.
            return Err(invalid("<nil>", key, &problems));
        }
        if negated {
            return Ok(Requirement {
                key: key.into(),
                operator: Operator::DoesNotExist,
                values: Box::default(),
            });
        }
        let after = self.peek();
        if after.kind == Kind::End || after.is(",") {
            return Ok(Requirement { key: key.into(), operator: Operator::Exists, values: Box::default() });
        }
        let operator = self.operator()?;
        let values = match operator {
            (Operator::In | Operator::NotIn, true) => self.set()?,
            _ => BTreeSet::from([self.value()?]),
        };
        checked(key, operator.0, &values)
    }

    /// The operator, and whether a parenthesised set follows it.
    fn operator(&mut self) -> Result<(Operator, bool), String> {
        let token = self.next();
        match (token.kind, token.text) {
            (Kind::Word, "in") => Ok((Operator::In, true)),
            (Kind::Word, "notin") => Ok((Operator::NotIn, true)),
            (Kind::Symbol, "=" | "==") => Ok((Operator::In, false)),
            (Kind::Symbol, "!=") => Ok((Operator::NotIn, false)),
            (Kind::Symbol, ">") => Ok((Operator::GreaterThan, false)),
            (Kind::Symbol, "<") => Ok((Operator::LessThan, false)),
            _ => Err(format!("found '{}', expected: {OPERATORS}", token.text)),
        }
    }

    fn value(&mut self) -> Result<&'a str, String> {
        let token = self.peek();
        if token.kind == Kind::End || token.is(",") {
            return Ok("");
        }
        let token = self.next();
        if token.is_name() {
            Ok(token.text)
        } else {
            Err(format!("found '{}', expected: identifier", token.text))
        }
    }

    fn set(&mut self) -> Result<BTreeSet<&'a str>, String> {
        let open = self.next();
        if !open.is("(") {
            return Err(format!("found '{}' expected: '('", open.text));
        }
        let first = self.peek();
        if first.is(")") {
            self.next();
            return Ok(BTreeSet::from([""]));
        }
        if !first.is_name() && !first.is(",") {
            return Err(format!("found '{}', expected: ',', ')' or identifier", first.text));
        }
        self.set_members()
    }

    /// Members up to and including the closing parenthesis. Gaps between commas are empty members.
    fn set_members(&mut self) -> Result<BTreeSet<&'a str>, String> {
        let mut members = BTreeSet::new();
        loop {
            let token = self.next();
            if token.is_name() {
                members.insert(token.text);
                let after = self.peek();
                if after.is(")") {
                    self.next();
                    return Ok(members);
                }
                if !after.is(",") {
                    return Err(format!("found '{}', expected: ',' or ')'", after.text));
                }
            } else if token.is(",") {
                if members.is_empty() {
                    members.insert("");
                }
                let after = self.peek();
                if after.is(")") {
                    self.next();
                    members.insert("");
                    return Ok(members);
                }
                if after.is(",") {
                    self.next();
                    members.insert("");
                }
            } else {
                return Err(format!("found '{}', expected: ',', or identifier", token.text));
            }
        }
    }
}

fn checked(key: &str, operator: Operator, values: &BTreeSet<&str>) -> Result<Requirement, String> {
    let mut errors = Vec::new();
    if matches!(operator, Operator::GreaterThan | Operator::LessThan) {
        for (index, value) in values.iter().enumerate() {
            if value.parse::<i64>().is_err() {
                let rule = ["for 'Gt', 'Lt' operators, the value must be an integer".to_owned()];
                errors.push(invalid(&format!("values[{index}]"), value, &rule));
            }
        }
    }
    for (index, value) in values.iter().enumerate() {
        let problems = label_value_problems(value);
        if !problems.is_empty() {
            errors.push(invalid(&format!("values[{index}][{key}]"), value, &problems));
        }
    }
    match errors.as_slice() {
        [] => Ok(Requirement {
            key: key.into(),
            operator,
            values: values.iter().map(|value| (*value).into()).collect(),
        }),
        [one] => Err(one.clone()),
        several => Err(format!("[{}]", several.join(", "))),
    }
}

fn invalid(field: &str, value: &str, problems: &[String]) -> String {
    format!("{field}: Invalid value: {value:?}: {}", problems.join("; "))
}

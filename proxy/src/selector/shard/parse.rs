//! The grammar of shard selectors: the part of CEL that kube-apiserver accepts, with its error texts.
//!
//! Kubernetes parses with CEL's own parser; what it accepts afterwards is only calls of `shardRange`
//! joined by `||`, with parentheses, white space and either kind of quotes.

use super::{HashField, ShardSelector};
use crate::status::quote;

/// Nested parentheses; CEL's own limit is of this order.
const DEPTH_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    Identifier(&'a str),
    /// Without quotes.
    Text(&'a str),
    Number(&'a str),
    Symbol(&'a str),
    End,
}

struct Parser<'a> {
    rest: &'a str,
}

type Term = (HashField, u64, Option<u64>);

pub(super) fn selector(text: &str) -> Result<ShardSelector, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("empty shard selector is not allowed; omit the parameter for unfiltered lists".into());
    }
    let mut parser = Parser { rest: text };
    let mut terms = Vec::new();
    parser.union(&mut terms, 0)?;
    match parser.next()? {
        Token::End => {}
        Token::Symbol(operator) if operator != ")" && operator != "," && operator != "(" => {
            return Err(format!(
                "unsupported function {}; only shardRange() and || are allowed",
                quote(operator)
            ));
        }
        token => return Err(unexpected(token)),
    }
    let (field, ..) = terms[0];
    if let Some((other, ..)) = terms.iter().find(|(other, ..)| *other != field) {
        let (first, second) = (quote(field.path()), quote(other.path()));
        return Err(format!("all shard ranges must use the same field, got {first} and {second}"));
    }
    Ok(ShardSelector { field, terms: terms.into_iter().map(|(_, start, end)| (start, end)).collect() })
}

impl<'a> Parser<'a> {
    /// `operand { "||" operand }`; appends at least one term.
    fn union(&mut self, terms: &mut Vec<Term>, depth: usize) -> Result<(), String> {
        if depth > DEPTH_MAX {
            return Err("CEL parse error: expression recursion limit exceeded".into());
        }
        loop {
            match self.next()? {
                Token::Symbol("(") => {
                    self.union(terms, depth + 1)?;
                    self.expect(")")?;
                }
                Token::Identifier(function) => terms.push(self.call(function)?),
                Token::Text(_) | Token::Number(_) => {
                    return Err(
                        "unexpected expression kind; expected shardRange() call or || operator".into()
                    );
                }
                token => return Err(unexpected(token)),
            }
            if self.peek()? != Token::Symbol("||") {
                return Ok(());
            }
            self.next()?;
        }
    }

    fn call(&mut self, function: &str) -> Result<Term, String> {
        if self.peek()? != Token::Symbol("(") {
            return Err("unexpected expression kind; expected shardRange() call or || operator".into());
        }
        if function != "shardRange" {
            return Err(format!(
                "unsupported function {}; only shardRange() and || are allowed",
                quote(function)
            ));
        }
        self.next()?;
        let arguments = self.arguments()?;
        let [field, start, end] = arguments.as_slice() else {
            return Err(format!("shardRange() requires exactly 3 arguments, got {}", arguments.len()));
        };
        let field = field_of(field)?;
        let (start, start_text) = hex_of(start, "hexStart")?;
        let (end, end_text) = hex_of(end, "hexEnd")?;
        match start {
            Some(start) if end.is_none_or(|end| start < end) => Ok((field, start, end)),
            _ => Err(format!("shard range start {start_text} must be less than end {end_text}")),
        }
    }

    /// Arguments up to and including the closing parenthesis.
    fn arguments(&mut self) -> Result<Vec<Argument<'a>>, String> {
        let mut arguments = Vec::new();
        if self.peek()? == Token::Symbol(")") {
            self.next()?;
            return Ok(arguments);
        }
        loop {
            arguments.push(self.argument()?);
            match self.next()? {
                Token::Symbol(")") => return Ok(arguments),
                Token::Symbol(",") => {}
                token => return Err(unexpected(token)),
            }
        }
    }

    fn argument(&mut self) -> Result<Argument<'a>, String> {
        match self.next()? {
            Token::Text(text) => Ok(Argument::Text(text)),
            Token::Number(_) => Ok(Argument::Number),
            Token::Identifier(first) => {
                let mut path = first.to_owned();
                while self.peek()? == Token::Symbol(".") {
                    self.next()?;
                    let Token::Identifier(step) = self.next()? else {
                        return Err(
                            "CEL parse error: Syntax error: no viable alternative at input '.'".into()
                        );
                    };
                    path.push('.');
                    path.push_str(step);
                }
                Ok(Argument::Path(path))
            }
            token => Err(unexpected(token)),
        }
    }

    fn expect(&mut self, symbol: &str) -> Result<(), String> {
        match self.next()? {
            Token::Symbol(found) if found == symbol => Ok(()),
            token => Err(unexpected(token)),
        }
    }

    fn peek(&self) -> Result<Token<'a>, String> {
        Parser { rest: self.rest }.next()
    }

    fn next(&mut self) -> Result<Token<'a>, String> {
        let text = self.rest.trim_start();
        let Some(first) = text.chars().next() else {
            self.rest = text;
            return Ok(Token::End);
        };
        let span = |is: fn(char) -> bool| text.find(|char| !is(char)).unwrap_or(text.len());
        let (token, len) = match first {
            '\'' | '"' => {
                let Some(len) = text[1..].find(first) else {
                    return Err("CEL parse error: Syntax error: unterminated string literal".into());
                };
                (Token::Text(&text[1..=len]), len + 2)
            }
            'a'..='z' | 'A'..='Z' | '_' => {
                let len = span(|char| char.is_ascii_alphanumeric() || char == '_');
                (Token::Identifier(&text[..len]), len)
            }
            '0'..='9' => {
                let len = span(|char| char.is_ascii_alphanumeric());
                (Token::Number(&text[..len]), len)
            }
            _ => {
                let double =
                    ["||", "&&", "==", "!=", "<=", ">="].into_iter().find(|two| text.starts_with(two));
                let len = double.map_or(first.len_utf8(), str::len);
                (Token::Symbol(&text[..len]), len)
            }
        };
        self.rest = &text[len..];
        Ok(token)
    }
}

enum Argument<'a> {
    Path(String),
    Text(&'a str),
    Number,
}

fn field_of(argument: &Argument<'_>) -> Result<HashField, String> {
    let Argument::Path(path) = argument else {
        return Err("shardRange() first argument: expected field path (e.g. object.metadata.uid)".into());
    };
    [HashField::Uid, HashField::Namespace].into_iter().find(|field| field.path() == path).ok_or_else(|| {
        let supported = "object.metadata.uid, object.metadata.namespace";
        format!("unsupported field path {}; supported: {supported}", quote(path))
    })
}

/// The bound and its text; `None` is 2⁶⁴.
fn hex_of<'a>(argument: &Argument<'a>, name: &str) -> Result<(Option<u64>, &'a str), String> {
    let Argument::Text(text) = argument else {
        return Err(format!("{name} must be a string literal (e.g. '0xff')"));
    };
    let Some(hex) = text.strip_prefix("0x") else {
        return Err(format!("{name} must have '0x' prefix, got {}", quote(text)));
    };
    if hex.is_empty() {
        return Err(format!("{name}: hex value is required after '0x'"));
    }
    if hex.len() > 17 {
        return Err(format!("{name}: hex value too long ({} chars, max 17): {}", hex.len(), quote(hex)));
    }
    if let Some(bad) = hex.chars().find(|char| !matches!(char, '0'..='9' | 'a'..='f')) {
        let (bad, whole) = (quote(&bad.to_string()), quote(text));
        return Err(format!("{name}: invalid hex character {bad} in {whole}"));
    }
    match hex.len() {
        17 if *text == "0x10000000000000000" => Ok((None, text)),
        17 => {
            let limit = "'0x10000000000000000' (2^64)";
            Err(format!("{name}: 17-digit hex value must be {limit}, got {}", quote(text)))
        }
        16 => {
            let bound = u64::from_str_radix(hex, 16).expect("sixteen hex digits, checked above");
            Ok((Some(bound), text))
        }
        _ => {
            let (got, padded) = (quote(text), quote(&format!("0x{hex:0>16}")));
            Err(format!(
                "{name} must be a 0x-prefixed 16-digit hex value, got {got} (did you mean {padded}?)"
            ))
        }
    }
}

fn unexpected(token: Token<'_>) -> String {
    let found = match token {
        Token::Identifier(text) | Token::Text(text) | Token::Number(text) | Token::Symbol(text) => text,
        Token::End => "<EOF>",
    };
    format!("CEL parse error: Syntax error: unexpected input '{found}'")
}

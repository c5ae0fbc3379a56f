//! Text to [`Value`], for the paths that compare and patch.
//!
//! Not `serde_json::from_str`: with `arbitrary_precision` that takes an object whose only key is
//! `$serde_json::private::Number` for a number, and such objects are as legal as any. Numbers keep
//! their digits. Nesting is bounded by [`DEPTH_MAX`], so recursion is too.

use serde_json::{Map, Number, Value};

use super::document::{DEPTH_MAX, decode, too_deep};
use super::scan::{Scanner, SyntaxError};

/// Parses one JSON value and nothing else. Of duplicate keys, the last wins.
pub(crate) fn parse(text: &str) -> Result<Value, SyntaxError> {
    let mut scanner = Scanner::new(text.as_bytes());
    scanner.skip_space();
    let value = value(&mut scanner, 0)?;
    scanner.skip_space();
    if scanner.peek().is_some() {
        return Err(scanner.unexpected("after top-level value"));
    }
    Ok(value)
}

fn value(scanner: &mut Scanner<'_>, depth: usize) -> Result<Value, SyntaxError> {
    let start = scanner.at();
    match scanner.peek() {
        Some(b'{' | b'[') if depth == DEPTH_MAX => Err(too_deep()),
        Some(b'{') => object(scanner, depth + 1),
        Some(b'[') => array(scanner, depth + 1),
        Some(b'"') => string(scanner).map(Value::String),
        Some(b'-' | b'0'..=b'9') => {
            scanner.scalar()?;
            let digits = String::from_utf8_lossy(&scanner.text()[start..scanner.at()]);
            // Parsing it through serde_json would write `1E400` as `1e+400`.
            Ok(Value::Number(Number::from_string_unchecked(digits.into_owned())))
        }
        _ => {
            scanner.scalar()?;
            Ok(match scanner.text()[start] {
                b't' => Value::Bool(true),
                b'f' => Value::Bool(false),
                _ => Value::Null,
            })
        }
    }
}

fn object(scanner: &mut Scanner<'_>, depth: usize) -> Result<Value, SyntaxError> {
    let mut map = Map::new();
    scanner.advance();
    scanner.skip_space();
    while scanner.peek() != Some(b'}') {
        if !map.is_empty() {
            scanner.expect(b',', "after object key:value pair")?;
            scanner.skip_space();
        }
        if scanner.peek() != Some(b'"') {
            return Err(scanner.unexpected("looking for beginning of object key string"));
        }
        let key = string(scanner)?;
        scanner.skip_space();
        scanner.expect(b':', "after object key")?;
        scanner.skip_space();
        map.insert(key, value(scanner, depth)?);
        scanner.skip_space();
    }
    scanner.advance();
    Ok(Value::Object(map))
}

fn array(scanner: &mut Scanner<'_>, depth: usize) -> Result<Value, SyntaxError> {
    let mut elements = Vec::new();
    scanner.advance();
    scanner.skip_space();
    while scanner.peek() != Some(b']') {
        if !elements.is_empty() {
            scanner.expect(b',', "after array element")?;
            scanner.skip_space();
        }
        elements.push(value(scanner, depth)?);
        scanner.skip_space();
    }
    scanner.advance();
    Ok(Value::Array(elements))
}

fn string(scanner: &mut Scanner<'_>) -> Result<String, SyntaxError> {
    let start = scanner.at();
    let escaped = scanner.string()?;
    let token = &scanner.text()[start..scanner.at()];
    if escaped {
        return Ok(decode(token));
    }
    let plain = &token[1..token.len() - 1];
    Ok(std::str::from_utf8(plain).expect("strings end at ASCII quotes, so UTF-8 stays whole").to_owned())
}

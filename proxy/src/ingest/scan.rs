//! Tokens of JSON text: every byte is checked against RFC 8259, nothing is copied or decoded.
//!
//! Stricter than Go and `serde_json` in one thing: half of a surrogate pair (`"\ud800"`) is refused,
//! because clients written in Rust cannot read it and one such object would break every list it is in.
//! Errors have the texts of Go's `encoding/json`, which is what kube-apiserver's clients know.

/// Why a text is not JSON.
pub(crate) type SyntaxError = String;

/// A cursor over JSON text. Positions are byte offsets.
pub(super) struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Scanner<'a> {
    /// The text must be UTF-8; that is not checked again.
    pub(super) fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// Position of the next byte.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// The whole text.
    pub(super) fn text(&self) -> &'a [u8] {
        self.text
    }

    /// The next byte, not consumed.
    pub(super) fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// Consumes one byte that was peeked.
    pub(super) fn advance(&mut self) {
        self.at += 1;
    }

    /// Consumes insignificant white space; whether there was any.
    pub(super) fn skip_space(&mut self) -> bool {
        let start = self.at;
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
        self.at > start
    }

    /// Consumes this byte, or says that it was expected `context`, such as `after object key`.
    pub(super) fn expect(&mut self, byte: u8, context: &str) -> Result<(), SyntaxError> {
        if self.peek() == Some(byte) {
            self.at += 1;
            return Ok(());
        }
        Err(self.unexpected(context))
    }

    /// The error for the next byte.
    #[cold]
    pub(super) fn unexpected(&self, context: &str) -> SyntaxError {
        let Some(byte) = self.peek() else { return "unexpected end of JSON input".into() };
        let quoted = match byte {
            b'\'' => r"'\''".into(),
            b'"' => r#"'"'"#.into(),
            b'\\' => r"'\\'".into(),
            b'\n' => r"'\n'".into(),
            b'\r' => r"'\r'".into(),
            b'\t' => r"'\t'".into(),
            0x20..=0x7e => format!("'{}'", char::from(byte)),
            0..=0x7f => format!(r"'\x{byte:02x}'"),
            // Go prints the byte as if it were a Latin-1 character.
            _ => format!("'{}'", char::from(byte)),
        };
        format!("invalid character {quoted} {context}")
    }

    /// Consumes a string that begins here, quotes included; whether it holds escapes.
    pub(super) fn string(&mut self) -> Result<bool, SyntaxError> {
        debug_assert_eq!(self.peek(), Some(b'"'));
        self.at += 1;
        let mut escaped = false;
        loop {
            self.skip_plain();
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(escaped);
                }
                Some(b'\\') => {
                    escaped = true;
                    self.escape()?;
                }
                _ => return Err(self.unexpected("in string literal")),
            }
        }
    }

    /// Moves to the next byte that is a quote, a backslash or a control character, or to the end.
    fn skip_plain(&mut self) {
        const ONES: u64 = u64::MAX / 255;
        const HIGH: u64 = ONES << 7;
        while let Some(chunk) = self.text[self.at..].first_chunk::<8>() {
            let word = u64::from_le_bytes(*chunk);
            let quote = word ^ (ONES * u64::from(b'"'));
            let backslash = word ^ (ONES * u64::from(b'\\'));
            // Each term has the high bit of a byte set if that byte is zero, or below 0x20; a false
            // positive can only follow a true one in a higher byte, so the lowest set bit is exact.
            let stop = (quote.wrapping_sub(ONES) & !quote)
                | (backslash.wrapping_sub(ONES) & !backslash)
                | (word.wrapping_sub(ONES * 0x20) & !word);
            if stop & HIGH != 0 {
                self.at += ((stop & HIGH).trailing_zeros() / 8) as usize;
                return;
            }
            self.at += 8;
        }
        while self.peek().is_some_and(|byte| byte != b'"' && byte != b'\\' && byte >= 0x20) {
            self.at += 1;
        }
    }

    fn escape(&mut self) -> Result<(), SyntaxError> {
        self.at += 1;
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.at += 1;
                Ok(())
            }
            Some(b'u') => {
                self.at += 1;
                match self.hex4()? {
                    0xd800..=0xdbff => self.low_surrogate(),
                    0xdc00..=0xdfff => Err(LONE_SURROGATE.into()),
                    _ => Ok(()),
                }
            }
            _ => Err(self.unexpected("in string escape code")),
        }
    }

    fn low_surrogate(&mut self) -> Result<(), SyntaxError> {
        if self.text[self.at..].starts_with(br"\u") {
            self.at += 2;
            if (0xdc00..=0xdfff).contains(&self.hex4()?) {
                return Ok(());
            }
        }
        Err(LONE_SURROGATE.into())
    }

    fn hex4(&mut self) -> Result<u32, SyntaxError> {
        let mut value = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            let Some(digit) = digit else {
                return Err(self.unexpected(r"in \u hexadecimal character escape"));
            };
            value = value << 4 | digit;
            self.at += 1;
        }
        Ok(value)
    }

    /// Consumes a number, `true`, `false` or `null` that begins here.
    pub(super) fn scalar(&mut self) -> Result<(), SyntaxError> {
        match self.peek() {
            Some(b't') => self.literal("true"),
            Some(b'f') => self.literal("false"),
            Some(b'n') => self.literal("null"),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(self.unexpected("looking for beginning of value")),
        }
    }

    fn literal(&mut self, word: &str) -> Result<(), SyntaxError> {
        for byte in word.bytes() {
            if self.peek() != Some(byte) {
                let context = format!("in literal {word} (expecting '{}')", char::from(byte));
                return Err(self.unexpected(&context));
            }
            self.at += 1;
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), SyntaxError> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits("in numeric literal")?,
            _ => return Err(self.unexpected("in numeric literal")),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits("after decimal point in numeric literal")?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits("in exponent of numeric literal")?;
        }
        Ok(())
    }

    fn digits(&mut self, context: &str) -> Result<(), SyntaxError> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start { Err(self.unexpected(context)) } else { Ok(()) }
    }
}

const LONE_SURROGATE: &str = r"half of a surrogate pair in \u hexadecimal character escape";

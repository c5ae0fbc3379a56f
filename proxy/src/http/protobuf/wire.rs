//! Protobuf's wire format: tags, varints, lengths. Bounded by the input; never panics.

/// Why bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum WireError {
    /// The message ends inside a field.
    #[error("unexpected EOF")]
    Short,
    /// A varint of more than 64 bits, or field number zero.
    #[error("illegal tag or varint")]
    Varint,
    /// A group, or a wire type that does not exist.
    #[error("illegal wire type {0}")]
    WireType(u8),
}

/// The value of a field as it stands on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    /// Integers and booleans.
    Varint(u64),
    /// Texts, bytes, messages.
    Bytes(&'a [u8]),
    /// Fixed 32 or 64 bits; no field that we know has them.
    Fixed,
}

/// The fields of a message, in the order in which they were sent.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Value<'a>), WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Result<(u64, Value<'a>), WireError> {
        let tag = self.varint()?;
        let number = tag >> 3;
        if number == 0 {
            return Err(WireError::Varint);
        }
        let value = match (tag & 7) as u8 {
            0 => Value::Varint(self.varint()?),
            1 => self.take(8).map(|_| Value::Fixed)?,
            2 => {
                let len = usize::try_from(self.varint()?).map_err(|_| WireError::Short)?;
                Value::Bytes(self.take(len)?)
            }
            5 => self.take(4).map(|_| Value::Fixed)?,
            other => return Err(WireError::WireType(other)),
        };
        Ok((number, value))
    }

    fn varint(&mut self) -> Result<u64, WireError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first().ok_or(WireError::Short)?;
            self.0 = rest;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(WireError::Varint);
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(WireError::Varint)
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(WireError::Short)?;
        self.0 = rest;
        Ok(taken)
    }
}

//! Bytes into lines of bounded length.

use bytes::{Buf, BytesMut};
use http_body::Body;
use http_body_util::BodyExt;

/// Takes lines off a body. Empty lines are left out; a last line without an end is one too.
#[derive(Debug)]
pub struct Lines<B> {
    body: B,
    buffer: BytesMut,
    /// Up to here there is no end of a line.
    searched: usize,
    line_max: usize,
    ended: bool,
}

/// Why there is no next line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// Longer than allowed.
    #[error("a line is longer than {0} bytes")]
    TooLong(usize),
    /// The body broke off.
    #[error("the stream broke off: {0}")]
    Broken(String),
}

impl<B> Lines<B>
where
    B: Body + Unpin,
    B::Error: std::fmt::Display,
{
    /// Lines of at most so many bytes.
    pub fn new(body: B, line_max: usize) -> Self {
        Self { body, buffer: BytesMut::new(), searched: 0, line_max, ended: false }
    }

    /// The next line, without its end; `None` at the end of the body. Cancel safe.
    pub async fn next(&mut self) -> Result<Option<BytesMut>, LineError> {
        loop {
            if let Some(line) = self.buffered()? {
                return Ok(Some(line));
            }
            if self.ended {
                return Ok(None);
            }
            match self.body.frame().await {
                None => self.ended = true,
                Some(Ok(frame)) => {
                    if let Ok(mut data) = frame.into_data() {
                        while data.has_remaining() {
                            let chunk = data.chunk();
                            let len = chunk.len();
                            self.buffer.extend_from_slice(chunk);
                            data.advance(len);
                        }
                    }
                }
                Some(Err(error)) => return Err(LineError::Broken(error.to_string())),
            }
        }
    }

    /// A line that is here already.
    pub fn buffered(&mut self) -> Result<Option<BytesMut>, LineError> {
        loop {
            let end = memchr::memchr(b'\n', &self.buffer[self.searched..]);
            let mut line = match end {
                Some(end) => {
                    let mut line = self.buffer.split_to(self.searched + end + 1);
                    line.truncate(line.len() - 1);
                    line
                }
                None if self.buffer.len() > self.line_max => return Err(LineError::TooLong(self.line_max)),
                None if self.ended && !self.buffer.is_empty() => self.buffer.split(),
                None => {
                    self.searched = self.buffer.len();
                    return Ok(None);
                }
            };
            self.searched = 0;
            if line.len() > self.line_max {
                return Err(LineError::TooLong(self.line_max));
            }
            if line.last() == Some(&b'\r') {
                line.truncate(line.len() - 1);
            }
            if !line.is_empty() {
                return Ok(Some(line));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;

    use bytes::Bytes;
    use futures::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;

    use super::*;

    async fn lines(chunks: &[&str], max: usize) -> Vec<Result<String, LineError>> {
        let chunks: VecDeque<_> =
            chunks.iter().map(|chunk| Bytes::copy_from_slice(chunk.as_bytes())).collect();
        let frames = stream::iter(chunks.into_iter().map(|data| Ok::<_, Infallible>(Frame::data(data))));
        let mut lines = Lines::new(StreamBody::new(frames), max);
        let mut all = Vec::new();
        loop {
            match lines.next().await {
                Ok(Some(line)) => all.push(Ok(String::from_utf8(line.to_vec()).expect("text"))),
                Ok(None) => return all,
                Err(error) => {
                    all.push(Err(error));
                    return all;
                }
            }
        }
    }

    #[tokio::test]
    async fn lines_do_not_depend_on_how_bytes_arrive() {
        let expected = ["one", "two", "three"].map(|line| Ok(line.to_owned()));
        for chunks in
            [&["one\ntwo\nthree\n"][..], &["o", "ne", "\n\ntwo\r", "\nthree"], &["one\n", "two\nthr", "ee\n"]]
        {
            assert_eq!(lines(chunks, 5).await, expected, "{chunks:?}");
        }
    }

    #[tokio::test]
    async fn d31_a_line_that_is_too_long_is_refused_before_its_end_comes() {
        for chunks in [&["one\nlonger"][..], &["one\nlon", "ger\n"]] {
            assert_eq!(lines(chunks, 5).await, [Ok("one".to_owned()), Err(LineError::TooLong(5))]);
        }
    }
}

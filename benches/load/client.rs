//! A minimal HTTP/1.1 client that discards bodies, so that the server's cost is what is measured.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// One keep-alive connection.
pub(crate) struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

/// What came back, the body reduced to its length.
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body_bytes: u64,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![0; 256 << 10], start: 0, end: 0 })
    }

    /// Sends a request and discards the answer's body.
    pub(crate) async fn send(&mut self, verb: &str, path: &str, body: &[u8]) -> io::Result<Answer> {
        self.write(verb, path, body).await?;
        self.answer(&mut |_| ()).await
    }

    /// Sends a GET and keeps the body.
    pub(crate) async fn get(&mut self, path: &str) -> io::Result<Vec<u8>> {
        self.write("GET", path, b"").await?;
        let mut body = Vec::new();
        self.answer(&mut |bytes| body.extend_from_slice(bytes)).await?;
        Ok(body)
    }

    /// Starts a watch: returns when the headers have arrived; the stream follows with [`Self::events`].
    pub(crate) async fn watch(&mut self, path: &str) -> io::Result<()> {
        self.write("GET", path, b"").await?;
        let head = self.head().await?;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        Ok(())
    }

    /// Reads a started watch until `count` lines have arrived. Counts newlines on the wire; chunk
    /// framing brings two of its own per chunk (`\r\n`), so only newlines not after `\r` count.
    pub(crate) async fn events(&mut self, count: usize) -> io::Result<()> {
        let mut seen = 0;
        let mut before = 0;
        loop {
            for &byte in &self.buffer[self.start..self.end] {
                if byte == b'\n' && before != b'\r' {
                    seen += 1;
                }
                before = byte;
            }
            self.start = self.end;
            if seen >= count {
                return Ok(());
            }
            self.fill().await?;
        }
    }

    async fn write(&mut self, verb: &str, path: &str, body: &[u8]) -> io::Result<()> {
        let mut request = format!(
            "{verb} {path} HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        request.extend_from_slice(body);
        self.stream.write_all(&request).await
    }

    async fn answer(&mut self, sink: &mut impl FnMut(&[u8])) -> io::Result<Answer> {
        let head = self.head().await?;
        let code = head.get(9..12).and_then(|code| code.parse().ok()).unwrap_or(0);
        let lower = head.to_ascii_lowercase();
        let mut body_bytes = 0;
        if let Some(length) = lower.split("content-length: ").nth(1) {
            let length: u64 = length.split("\r\n").next().and_then(|n| n.trim().parse().ok()).unwrap_or(0);
            self.take(length, sink).await?;
            body_bytes = length;
        } else if lower.contains("transfer-encoding: chunked") {
            loop {
                let line = self.line().await?;
                let length = u64::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
                self.take(length, sink).await?;
                self.line().await?;
                body_bytes += length;
                if length == 0 {
                    break;
                }
            }
        }
        Ok(Answer { code, body_bytes })
    }

    async fn head(&mut self) -> io::Result<String> {
        let mut head = String::new();
        loop {
            let line = self.line().await?;
            if line == "\r\n" {
                return Ok(head);
            }
            head.push_str(&line);
        }
    }

    async fn line(&mut self) -> io::Result<String> {
        loop {
            let pending = &self.buffer[self.start..self.end];
            if let Some(at) = pending.iter().position(|&byte| byte == b'\n') {
                let line = String::from_utf8_lossy(&pending[..=at]).into_owned();
                self.start += at + 1;
                return Ok(line);
            }
            self.fill().await?;
        }
    }

    async fn take(&mut self, mut length: u64, sink: &mut impl FnMut(&[u8])) -> io::Result<()> {
        while length > 0 {
            if self.start == self.end {
                self.fill().await?;
            }
            let here = ((self.end - self.start) as u64).min(length) as usize;
            sink(&self.buffer[self.start..self.start + here]);
            self.start += here;
            length -= here as u64;
        }
        Ok(())
    }

    async fn fill(&mut self) -> io::Result<()> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.buffer.len() {
            return Err(io::Error::other("line longer than the buffer"));
        }
        let read = self.stream.read(&mut self.buffer[self.end..]).await?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.end += read;
        Ok(())
    }
}

//! A minimal HTTP/1.1 client that discards bodies, so that the server's cost is what is measured.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Bytes that a connection reads at a time.
const BUFFER_BYTES: usize = 256 << 10;
/// The same for one of thousands of watchers.
const WATCHER_BUFFER_BYTES: usize = 16 << 10;
/// What is kept of the end of a watch's initial events: more than a bookmark has.
const TAIL_BYTES: usize = 1 << 10;

/// One keep-alive connection.
pub(crate) struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Sent with every request; each ends with CRLF.
    headers: &'static str,
    /// Of a watch: bytes of the current chunk that are not read yet, and whether there was one before.
    chunk_left: u64,
    in_chunks: bool,
    /// Of a watch: lines that arrived, and lines that were asked for.
    lines: usize,
    awaited: usize,
}

/// What came back, the body reduced to its length.
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body_bytes: u64,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> io::Result<Self> {
        Self::with_buffer(address, BUFFER_BYTES).await
    }

    /// One of many: with a small buffer.
    pub(crate) async fn watcher(address: SocketAddr) -> io::Result<Self> {
        Self::with_buffer(address, WATCHER_BUFFER_BYTES).await
    }

    async fn with_buffer(address: SocketAddr, bytes: usize) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            buffer: vec![0; bytes],
            start: 0,
            end: 0,
            headers: "",
            chunk_left: 0,
            in_chunks: false,
            lines: 0,
            awaited: 0,
        })
    }

    /// Accepts gzip from now on.
    pub(crate) fn accept_gzip(mut self) -> Self {
        self.headers = "Accept-Encoding: gzip\r\n";
        self
    }

    /// Sends a request and discards the answer's body.
    pub(crate) async fn send(&mut self, verb: &str, path: &str, body: &[u8]) -> io::Result<Answer> {
        self.write(verb, path, body).await?;
        self.answer(&mut |_| ()).await
    }

    /// Sends a GET and keeps the body; anything but 200 is an error.
    pub(crate) async fn get(&mut self, path: &str) -> io::Result<Vec<u8>> {
        let (code, body) = self.fetch(path).await?;
        if code != 200 {
            return Err(io::Error::other(format!("{path}: {code} {}", String::from_utf8_lossy(&body))));
        }
        Ok(body)
    }

    /// Sends a GET and keeps the code and the body.
    pub(crate) async fn fetch(&mut self, path: &str) -> io::Result<(u16, Vec<u8>)> {
        self.write("GET", path, b"").await?;
        let mut body = Vec::new();
        let answer = self.answer(&mut |bytes| body.extend_from_slice(bytes)).await?;
        Ok((answer.code, body))
    }

    /// Starts a watch: returns when the headers have arrived; the stream follows with [`Self::events`].
    pub(crate) async fn watch(&mut self, path: &str) -> io::Result<()> {
        self.write("GET", path, b"").await?;
        let head = self.head().await?;
        let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
        if !head.starts_with("HTTP/1.1 200") || !chunked {
            return Err(io::Error::other(format!("{path}: {head}")));
        }
        Ok(())
    }

    /// Reads a started watch until `count` more lines have arrived than were asked for so far. An ERROR
    /// event is an error.
    pub(crate) async fn events(&mut self, count: usize) -> io::Result<()> {
        self.awaited += count;
        while self.lines < self.awaited {
            let payload = self.payload().await?;
            if memchr::memmem::find(payload, br#"{"type":"ERROR""#).is_some() {
                return Err(io::Error::other(String::from_utf8_lossy(payload).into_owned()));
            }
            self.lines += memchr::memchr_iter(b'\n', payload).count();
        }
        Ok(())
    }

    /// What arrived on a watch and was not asked for; empty if nothing did.
    pub(crate) fn surplus(&mut self) -> io::Result<String> {
        self.compact();
        match self.stream.try_read(&mut self.buffer[self.end..]) {
            Ok(read) => self.end += read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        let unread = String::from_utf8_lossy(&self.buffer[self.start..self.end]);
        // The end of the chunk that was read last is no event.
        match (unread.trim(), self.lines - self.awaited) {
            ("", 0) => Ok(String::new()),
            (unread, lines) => Ok(format!("{lines} lines and {unread:?}")),
        }
    }

    /// Reads the initial events of a started watch: `count` of them and the bookmark that ends them.
    pub(crate) async fn initial_events(&mut self, count: usize) -> io::Result<()> {
        let mut tail = Vec::new();
        while self.lines <= count {
            let payload = self.payload().await?;
            tail.extend_from_slice(&payload[payload.len().saturating_sub(TAIL_BYTES)..]);
            self.lines += memchr::memchr_iter(b'\n', payload).count();
            tail.drain(..tail.len().saturating_sub(TAIL_BYTES));
        }
        self.awaited = count + 1;
        let ended = memchr::memmem::find(&tail, b"k8s.io/initial-events-end").is_some();
        if self.lines == count + 1 && ended {
            return Ok(());
        }
        let tail = String::from_utf8_lossy(&tail);
        Err(io::Error::other(format!("{} initial events instead of {count}, at the end: {tail}", self.lines)))
    }

    /// The next bytes of a started watch, without the framing of chunks.
    pub(crate) async fn payload(&mut self) -> io::Result<&[u8]> {
        if self.chunk_left == 0 {
            if self.in_chunks {
                self.line().await?;
            }
            self.chunk_left = self.chunk_length().await?;
            self.in_chunks = true;
            if self.chunk_left == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server ended the watch"));
            }
        }
        if self.start == self.end {
            self.fill().await?;
        }
        let here = ((self.end - self.start) as u64).min(self.chunk_left) as usize;
        let start = self.start;
        self.start += here;
        self.chunk_left -= here as u64;
        Ok(&self.buffer[start..start + here])
    }

    async fn chunk_length(&mut self) -> io::Result<u64> {
        let line = self.line().await?;
        u64::from_str_radix(line.trim(), 16).map_err(io::Error::other)
    }

    async fn write(&mut self, verb: &str, path: &str, body: &[u8]) -> io::Result<()> {
        let mut request = format!(
            "{verb} {path} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: bench\r\nAccept: application/json\r\n{}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.headers,
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
                let length = self.chunk_length().await?;
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

    /// Makes room at the end of the buffer.
    fn compact(&mut self) {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
    }

    async fn fill(&mut self) -> io::Result<()> {
        self.compact();
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

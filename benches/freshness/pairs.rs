//! Two reads that are compared: one after the other, again and again, the first one alternating.

use std::io;
use std::time::Instant;

use crate::harness::client::Client;
use crate::harness::verdict::Refusal;

/// A connection, and what is asked for on it.
pub(crate) struct Reader {
    client: Client,
    path: String,
}

impl Reader {
    pub(crate) fn new(client: Client, path: String) -> Self {
        Self { client, path }
    }

    /// Asks for something else from now on.
    pub(crate) fn ask(&mut self, path: String) {
        self.path = path;
    }

    /// Milliseconds of a read; anything but 200 is an error.
    pub(crate) async fn read(&mut self) -> Result<f64, Refusal> {
        let began = Instant::now();
        let answer = self.client.send("GET", &self.path, b"").await?;
        let took = began.elapsed().as_secs_f64() * 1e3;
        if answer.code != 200 {
            return Err(io::Error::other(format!("{}: {}", self.path, answer.code)).into());
        }
        Ok(took)
    }

    /// The body of the same read.
    pub(crate) async fn body(&mut self) -> Result<Vec<u8>, Refusal> {
        Ok(self.client.get(&self.path).await?)
    }
}

/// Milliseconds of each of so many reads.
pub(crate) async fn alternate(readers: &mut [Reader; 2], count: usize) -> Result<[Vec<f64>; 2], Refusal> {
    let mut took = [Vec::with_capacity(count), Vec::with_capacity(count)];
    for number in 0..count {
        for at in if number % 2 == 0 { [0, 1] } else { [1, 0] } {
            took[at].push(readers[at].read().await?);
        }
    }
    Ok(took)
}

//! A way to a server that can stop carrying anything, in either direction, while both ends believe that their
//! connection is open: a middle box that forgot it, a host that is gone.

use std::future::pending;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

/// An address of its own, behind which the server is. Its connections end with it.
pub(crate) struct Cable {
    pub(crate) address: String,
    /// How often it was cut.
    cuts: watch::Sender<u64>,
    _carrying: AbortOnDropHandle<()>,
}

impl Cable {
    /// To the server at `http://ADDR`, which may be away from time to time.
    pub(crate) async fn to(base: &str) -> Self {
        let server = base.strip_prefix("http://").expect("plain HTTP").to_owned();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let (cuts, cut) = watch::channel(0);
        let carrying = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (near, _) = listener.accept().await.expect("accepting goes on");
                // Who is not answered here is not answered there.
                let Ok(far) = TcpStream::connect(&server).await else { continue };
                let ((from, back), (answers, to)) = (near.into_split(), far.into_split());
                let mut cut = cut.clone();
                cut.mark_unchanged();
                connections.spawn(carry(from, to, cut.clone()));
                connections.spawn(carry(answers, back, cut));
                while connections.try_join_next().is_some() {}
            }
        });
        Self { address, cuts, _carrying: AbortOnDropHandle::new(carrying) }
    }

    /// The connections that there are carry nothing any more. New ones do.
    pub(crate) fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut cut: watch::Receiver<u64>) {
    let mut bytes = [0; 16 << 10];
    loop {
        let read = tokio::select! {
            biased;
            _ = cut.changed() => pending().await,
            read = from.read(&mut bytes) => read,
        };
        match read {
            Ok(length @ 1..) if to.write_all(&bytes[..length]).await.is_ok() => {}
            _ => return,
        }
    }
}

//! Standard input as a push stream: for scripts, and for sessions that were recorded.

use shardcache_proxy::push::server::ServerFrame;
use tokio::io::AsyncReadExt;

use super::link::{Link, Network, Target};
use super::selection::Resource;

/// Bytes read from standard input at a time.
const PIECE: usize = 64 << 10;

/// Sends standard input, and gives every frame of the cache to `show`; until the cache ends the stream.
/// The error is one line.
pub(crate) async fn pipe(
    network: Network,
    shard: &str,
    resource: Option<&Resource>,
    mut show: impl FnMut(&ServerFrame),
) -> Result<(), String> {
    let link = Link::connect(&Target::Network(Box::new(network))).await.map_err(|error| error.to_string())?;
    let mut stream = link.open(shard, resource).await.map_err(|error| error.to_string())?;
    let output = std::mem::replace(&mut stream.output, tokio::sync::mpsc::channel(1).0);
    let sending = tokio::spawn(async move {
        let mut input = tokio::io::stdin();
        let mut piece = vec![0; PIECE];
        // Whoever ends the input ends the stream; the cache still answers what it has read.
        while let Ok(len @ 1..) = input.read(&mut piece).await {
            if output.send(piece[..len].to_vec().into()).await.is_err() {
                return;
            }
        }
    });
    let mut ended = Ok(());
    while let Some(frame) = stream.input.recv().await {
        let frame = frame.map_err(|error| error.to_string())?;
        show(&frame);
        match &frame {
            ServerFrame::Error { status } => {
                let message = status.get("message").and_then(|message| message.as_str());
                ended = Err(message.unwrap_or("the cache ended the stream with an error").to_owned());
            }
            ServerFrame::Fenced { holder, .. } => ended = Err(format!("the shard is held by {holder}")),
            _ => {}
        }
    }
    sending.abort();
    ended
}

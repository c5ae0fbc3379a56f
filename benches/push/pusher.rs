//! A pusher whose frames are ready in memory, so that the server's speed is what is measured.

use std::net::SocketAddr;
use std::time::Instant;

use bytes::Bytes;
use shardcache_proxy::push::client::{ClientFrame, Hello, Sum, Upsert};
use shardcache_proxy::push::server::ServerFrame;
use shardcache_storage::{KeyParts, TypeName, entry_digest};

use crate::harness::pusher::{Connection, Stream, ended, unexpected};
use crate::harness::seed::seeded;
use crate::harness::verdict::Refusal;
use crate::stand::{OWNERS, SHARD};

/// Bytes that are handed to the connection at once, as the replicator does.
const PIECE_BYTES: usize = 256 << 10;
/// What a frame counts against the window beside its bytes.
const FRAME_COST: usize = 256;
/// Number of the frame before the first object: after the hello and the sync's start.
const BEFORE_OBJECTS: u64 = 2;

/// A complete sync, encoded.
pub(crate) struct Script {
    pieces: Vec<Piece>,
    pub(crate) objects: usize,
    last: u64,
}

struct Piece {
    bytes: Bytes,
    /// Number of its last frame.
    seq: u64,
    /// What it counts against the window.
    cost: usize,
}

/// What a push came to.
pub(crate) struct Pushed {
    /// From the sync's start to the ack of its end.
    pub(crate) seconds: f64,
    /// Objects of each commit: acks of one commit tell the same version of the cache.
    pub(crate) batches: Vec<usize>,
}

impl Script {
    /// A sync of the objects that a source is filled with.
    pub(crate) fn of(objects: usize) -> Self {
        let mut script = Self { pieces: vec![], objects, last: BEFORE_OBJECTS };
        let mut open = Vec::with_capacity(PIECE_BYTES + (8 << 10));
        ClientFrame::SyncStart { sync: 1 }.write(BEFORE_OBJECTS, &mut open);
        let mut frames = 1;
        let mut sum = Sum::default();
        for number in 0..objects {
            let object = seeded(number, OWNERS);
            let object = std::str::from_utf8(&object).expect("JSON is text");
            let version = number as u64 + 1;
            let key =
                KeyParts { shard: "", cluster: "root", namespace: "", name: &format!("export-{number}") };
            sum.count += 1;
            sum.digest = sum.digest.with(entry_digest(key, uid_of(object), version));
            let upsert = Upsert { version, cluster: "root".into(), namespace: None, name: None, object };
            script.last += 1;
            ClientFrame::Upsert(upsert).write(script.last, &mut open);
            frames += 1;
            if open.len() >= PIECE_BYTES {
                script.close(&mut open, &mut frames);
            }
        }
        script.last += 1;
        let version = objects as u64 + 1;
        let end = ClientFrame::SyncEnd { sync: 1, version, sum, allow_empty: objects == 0 };
        end.write(script.last, &mut open);
        frames += 1;
        script.close(&mut open, &mut frames);
        script
    }

    fn close(&mut self, open: &mut Vec<u8>, frames: &mut usize) {
        let cost = open.len() + *frames * FRAME_COST;
        self.pieces.push(Piece { bytes: Bytes::copy_from_slice(open), seq: self.last, cost });
        open.clear();
        *frames = 0;
    }

    /// Pushes it into an empty cell.
    pub(crate) async fn push(&self, address: SocketAddr) -> Result<Pushed, Refusal> {
        let mut connection = Connection::open(address, SHARD).await?;
        let hello = Hello { holder: "bench".into(), instance: "bench".into(), ..Hello::default() };
        let types = vec![TypeName::new("apis.kcp.io", "apiexports")];
        let _control = connection.control(hello.clone(), types).await?;
        let mut stream = connection.stream("?group=apis.kcp.io&version=v1alpha2&resource=apiexports").await?;
        let hello = Hello { source: "bench".into(), source_head: self.objects as u64 + 1, ..hello };
        stream.say(&ClientFrame::Hello(Box::new(hello))).await?;
        let window = stream.welcome().await?;
        self.run(&mut stream, window).await
    }

    async fn run(&self, stream: &mut Stream, mut window: usize) -> Result<Pushed, Refusal> {
        let began = Instant::now();
        let (mut sent, mut acked, mut unacked) = (0, 0, 0);
        let mut acks: Vec<(u64, String)> = vec![];
        loop {
            let next = self.pieces.get(sent).filter(|piece| unacked == 0 || unacked + piece.cost <= window);
            tokio::select! {
                biased;
                frame = stream.from.next() => match frame? {
                    ServerFrame::Ack { seq, cache_rv, .. } => {
                        while acked < sent && self.pieces[acked].seq <= seq {
                            unacked -= self.pieces[acked].cost;
                            acked += 1;
                        }
                        acks.push((seq, cache_rv));
                        if seq == self.last {
                            break;
                        }
                    }
                    ServerFrame::Throttle { window: now } => window = now as usize,
                    other => return Err(unexpected(&other)),
                },
                permit = stream.to.reserve(), if next.is_some() => {
                    let piece = next.expect("it is there");
                    permit.map_err(|_| ended())?.send(piece.bytes.clone());
                    unacked += piece.cost;
                    sent += 1;
                }
            }
        }
        Ok(Pushed { seconds: began.elapsed().as_secs_f64(), batches: self.batches(&acks) })
    }

    fn batches(&self, acks: &[(u64, String)]) -> Vec<usize> {
        let upto = |seq: u64| (seq.saturating_sub(BEFORE_OBJECTS) as usize).min(self.objects);
        let mut before = 0;
        acks.chunk_by(|(_, a), (_, b)| a == b)
            .filter_map(|commit| {
                let (first, end) = (before, upto(commit.last()?.0));
                before = end;
                Some(end - first)
            })
            .collect()
    }
}

/// The uid of an encoded object.
fn uid_of(object: &str) -> &str {
    let start = object.find(r#""uid":""#).map_or(0, |at| at + 7);
    &object[start..start + object[start..].find('"').unwrap_or(0)]
}

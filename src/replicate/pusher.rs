//! The pusher's side of one cell's stream, without a clock or a socket: what was sent, what the server has
//! said of it, and what the copy must look like.
//!
//! ```text
//! source events ──► Pusher ──► frames (taken with `take`)
//! server frames ──► Pusher ──► what to do next
//! ```

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};

use shardcache_proxy::push::client::{ClientFrame, Delete, Hello, Provider, Sum, Upsert};
use shardcache_storage::{Digest, KeyParts, entry_digest};

/// One object's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place<'a> {
    pub(super) cluster: &'a str,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
}

impl Place<'_> {
    fn parts(&self) -> KeyParts<'_> {
        KeyParts { shard: "", cluster: self.cluster, namespace: self.namespace, name: self.name }
    }

    /// Stands for the key in the mirror; two keys with one are as likely as two equal digests.
    fn id(&self) -> u128 {
        entry_digest(self.parts(), "", 0).0
    }
}

/// What was sent and not deleted: 32 bytes an object, not the objects.
#[derive(Clone, Debug, Default)]
pub(super) struct Mirror {
    entries: HashMap<u128, Digest>,
    sum: Sum,
}

impl Mirror {
    pub(super) fn sum(&self) -> Sum {
        self.sum
    }

    pub(super) fn put(&mut self, place: Place<'_>, uid: &str, version: u64) {
        let entry = entry_digest(place.parts(), uid, version);
        match self.entries.insert(place.id(), entry) {
            Some(old) => self.sum.digest = self.sum.digest.without(old),
            None => self.sum.count += 1,
        }
        self.sum.digest = self.sum.digest.with(entry);
    }

    /// Whether there was such an object.
    pub(super) fn remove(&mut self, place: Place<'_>) -> bool {
        let Some(old) = self.entries.remove(&place.id()) else { return false };
        self.sum.count -= 1;
        self.sum.digest = self.sum.digest.without(old);
        true
    }

    pub(super) fn has(&self, place: Place<'_>) -> bool {
        self.entries.contains_key(&place.id())
    }
}

/// One stream of one cell.
#[derive(Debug)]
pub(super) struct Pusher {
    seq: u64,
    window: usize,
    /// Frames without an ack: number and bytes.
    unacked: VecDeque<(u64, usize)>,
    unacked_bytes: usize,
    out: Vec<u8>,
    mirror: Mirror,
    /// Everything of the source up to here was sent.
    position: u64,
    /// Below this the mirror is ahead of the position: what was sent before is being sent again.
    settled: u64,
    /// The position that was last told.
    told: u64,
    sync: Option<(u64, Mirror)>,
    syncs: u64,
    awaits_list: bool,
}

impl Pusher {
    /// A stream that begins with this hello.
    pub(super) fn new(hello: Hello) -> Self {
        let mut pusher = Self {
            seq: 0,
            window: usize::MAX,
            unacked: VecDeque::new(),
            unacked_bytes: 0,
            out: Vec::new(),
            mirror: Mirror::default(),
            position: 0,
            settled: 0,
            told: 0,
            sync: None,
            syncs: 0,
            awaits_list: false,
        };
        pusher.send(&ClientFrame::Hello(Box::new(hello)));
        pusher
    }

    /// The server has `theirs` at `position`, and the source had `mirror` at `mirrored`, which is not before.
    /// Whether the stream goes on, from [`Self::position`]; if not, everything must be listed.
    pub(super) fn resume(&mut self, position: u64, theirs: Sum, mirror: Mirror, mirrored: u64) -> bool {
        // What is the same in both is complete up to the later one: nothing is sent again, and the next
        // progress says so. Else the later mirror is compared once the stream has come to it.
        let is_same = mirror.sum() == theirs;
        self.position = if is_same { mirrored } else { position };
        (self.settled, self.mirror) = (mirrored, mirror);
        is_same || mirrored > position
    }

    /// Takes the window of a welcome or a throttle.
    pub(super) fn set_window(&mut self, bytes: u64) {
        self.window = usize::try_from(bytes).unwrap_or(usize::MAX);
    }

    /// Everything up to a frame is durable.
    pub(super) fn acked(&mut self, seq: u64) {
        while let Some((number, bytes)) = self.unacked.front().copied()
            && number <= seq
        {
            self.unacked.pop_front();
            self.unacked_bytes -= bytes;
        }
    }

    /// Whether another frame may be made now.
    pub(super) fn may_send(&self) -> bool {
        self.unacked_bytes < self.window && self.out.len() < OUT_MAX
    }

    /// Whether everything that was sent is durable.
    pub(super) fn is_idle(&self) -> bool {
        self.unacked.is_empty()
    }

    /// The bytes to be sent.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    pub(super) fn has_output(&self) -> bool {
        !self.out.is_empty()
    }

    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// What was sent and not deleted.
    pub(super) fn sum(&self) -> Sum {
        self.mirror.sum()
    }

    pub(super) fn is_syncing(&self) -> bool {
        self.sync.is_some()
    }

    /// The mirror and the position it is of, to begin another stream with; nothing in the middle of a sync.
    pub(super) fn into_mirror(self) -> Option<(Mirror, u64)> {
        let complete = !self.lists() && self.position > 0;
        let reaches = self.reaches();
        complete.then_some((self.mirror, reaches))
    }

    /// Nothing is to be said before a list of the source has come.
    pub(super) fn await_list(&mut self) {
        self.awaits_list = true;
        self.sync = None;
    }

    pub(super) fn awaits_list(&self) -> bool {
        self.awaits_list
    }

    /// Whether a list is awaited, or under way.
    pub(super) fn lists(&self) -> bool {
        self.awaits_list || self.sync.is_some()
    }

    /// A complete list of the source begins.
    pub(super) fn sync_start(&mut self) {
        self.awaits_list = false;
        self.syncs += 1;
        self.sync = Some((self.syncs, Mirror::default()));
        self.send(&ClientFrame::SyncStart { sync: self.syncs });
    }

    /// The list was complete, and of this version.
    pub(super) fn sync_end(&mut self, version: u64) {
        let Some((sync, mirror)) = self.sync.take() else { return };
        let sum = mirror.sum();
        (self.mirror, self.position, self.settled) = (mirror, version, 0);
        let allow_empty = sum.count == 0;
        self.send(&ClientFrame::SyncEnd { sync, version, sum, allow_empty });
    }

    /// An object of the source, as JSON.
    pub(super) fn upsert(&mut self, place: Place<'_>, uid: &str, version: u64, object: &str) {
        if let Some((_, mirror)) = &mut self.sync {
            mirror.put(place, uid, version);
        } else {
            self.mirror.put(place, uid, version);
            self.position = version;
        }
        self.send(&ClientFrame::Upsert(Upsert {
            version,
            cluster: Cow::Borrowed(place.cluster),
            namespace: None,
            name: None,
            object,
        }));
    }

    /// An object left the source, or what of it is wanted; of what was never sent only the version counts.
    pub(super) fn remove(&mut self, place: Place<'_>, uid: &str, version: u64) {
        // While events are sent again, the mirror may have lost the object already.
        let known = self.mirror.has(place) || version <= self.settled;
        self.mirror.remove(place);
        self.position = version;
        if known {
            self.send(&ClientFrame::Delete(Delete {
                version,
                cluster: Cow::Borrowed(place.cluster),
                namespace: Cow::Borrowed(place.namespace),
                name: Cow::Borrowed(place.name),
                uid: Cow::Borrowed(uid),
            }));
        }
    }

    /// What was sent is what the source had at this version, once the position is there.
    pub(super) fn reaches(&self) -> u64 {
        self.position.max(self.settled)
    }

    /// The source has had no other event up to a version.
    pub(super) fn reached(&mut self, version: u64) {
        self.position = self.position.max(version);
    }

    /// Says how far the stream is: the sign of life, and the answer to a barrier. `false` while there is
    /// nothing to be said, because the copy is between two states.
    pub(super) fn progress(&mut self, barrier: Option<(u64, Provider)>) -> bool {
        if self.lists() || self.position == 0 || self.position < self.settled {
            return false;
        }
        self.told = self.position;
        let at = (self.position, self.mirror.sum());
        let (barrier, provider) = barrier.unzip();
        self.send(&ClientFrame::Progress { at: Some(at), barrier, provider });
        true
    }

    /// Whether the position is another one than [`Pusher::progress`] last told of.
    pub(super) fn has_moved(&self) -> bool {
        self.position != self.told
    }

    fn send(&mut self, frame: &ClientFrame<'_>) {
        self.seq += 1;
        let before = self.out.len();
        frame.write(self.seq, &mut self.out);
        let bytes = self.out.len() - before;
        self.unacked.push_back((self.seq, bytes));
        self.unacked_bytes += bytes;
    }
}

/// Bytes of frames that may wait for the connection.
const OUT_MAX: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use shardcache_proxy::push::client;

    use super::*;

    const A: Place<'_> = Place { cluster: "root", namespace: "", name: "a" };
    const B: Place<'_> = Place { cluster: "root", namespace: "", name: "b" };

    /// The types of the frames that wait, with their versions.
    fn frames(pusher: &mut Pusher) -> Vec<String> {
        let bytes = pusher.take();
        let text = String::from_utf8(bytes).expect("JSON");
        let of = |line: &str| {
            let value: serde_json::Value = serde_json::from_str(line).expect("JSON");
            client::read(line.as_bytes()).expect("a legal frame");
            let version = value["rv"].as_str().map(|version| format!("@{version}")).unwrap_or_default();
            format!("{}{version}", value["type"].as_str().expect("a type"))
        };
        text.lines().map(of).collect()
    }

    fn following() -> Pusher {
        let hello = Hello { holder: "h".into(), instance: "i".into(), ..Hello::default() };
        let mut pusher = Pusher::new(hello);
        pusher.sync_start();
        pusher.upsert(A, "ua", 3, "{}");
        pusher.upsert(B, "ub", 4, "{}");
        pusher.sync_end(5);
        assert_eq!(frames(&mut pusher), ["hello", "syncStart", "upsert@3", "upsert@4", "syncEnd@5"]);
        pusher
    }

    #[test]
    fn d36_the_mirror_is_what_was_sent_and_not_deleted() {
        let mut pusher = following();
        let both = pusher.sum();
        assert_eq!(both.count, 2);
        pusher.upsert(A, "ua", 6, "{}");
        pusher.remove(B, "ub", 7);
        pusher.remove(B, "ub", 8);
        assert_eq!(frames(&mut pusher), ["upsert@6", "delete@7"], "what is not there is not deleted");
        assert!(pusher.has_moved() && pusher.progress(None) && !pusher.has_moved());
        assert_eq!(frames(&mut pusher), ["progress@8"], "but counts as seen");
        pusher.upsert(A, "ua", 3, "{}");
        pusher.upsert(B, "ub", 4, "{}");
        assert_eq!(pusher.sum(), both);
    }

    #[test]
    fn nothing_is_said_of_a_copy_that_is_between_two_states() {
        let mut pusher = following();
        pusher.await_list();
        assert!(!pusher.progress(None));
        pusher.sync_start();
        assert!(!pusher.progress(Some((1, Provider::Watch))), "nor is a barrier answered");
        assert_eq!(frames(&mut pusher), ["syncStart"]);
        // Sent again from an older position: the mirror is ahead of it for a while.
        let (mirror, mirrored) = following().into_mirror().expect("complete");
        let mut pusher = following();
        let theirs = Sum { count: 1, ..mirror.sum() };
        assert!(pusher.resume(2, theirs, mirror, mirrored));
        pusher.upsert(A, "ua", 3, "{}");
        assert!(!pusher.progress(None));
        pusher.upsert(B, "ub", 5, "{}");
        assert!(pusher.progress(None));
        assert_eq!(frames(&mut pusher), ["upsert@3", "upsert@5", "progress@5"]);
    }

    #[test]
    fn a_copy_that_is_the_same_goes_on_where_the_source_was_seen() {
        let (mirror, mirrored) = following().into_mirror().expect("complete");
        let (same, other) = (mirror.sum(), Sum { count: 1, ..mirror.sum() });
        let mut pusher = following();
        assert!(pusher.resume(2, same, mirror.clone(), mirrored));
        pusher.progress(None);
        assert_eq!(frames(&mut pusher), ["progress@5"]);
        assert!(!following().resume(5, other, mirror, mirrored), "of one version, and not the same");
    }

    #[test]
    fn d31_no_more_is_sent_than_the_window_holds() {
        let mut pusher = following();
        pusher.set_window(300);
        assert!(!pusher.may_send(), "more than the window is without an ack");
        pusher.acked(4);
        assert!(pusher.may_send() && !pusher.is_idle());
        pusher.acked(5);
        assert!(pusher.is_idle());
        while pusher.may_send() {
            pusher.upsert(A, "ua", 6, "{}");
        }
        assert!(pusher.take().len() < 300 + 200);
        assert!(following().into_mirror().is_some_and(|(mirror, at)| mirror.sum().count == 2 && at == 5));
    }
}

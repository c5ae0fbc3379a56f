//! Which resourceVersions this store issued, and which come from another timeline.
//!
//! Each opening of a store is an [`Incarnation`]: a contiguous interval of revisions and a random
//! tag, durable before the first client is served. Because nothing is shown before it is durable, a
//! version that lies in no interval is proof that its holder saw a history this store does not have:
//! a restored backup, a second replica, a wiped volume.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::resource_version::{REVISION_MAX, ResourceVersion, Revision, Tag};

/// Revisions left free between the last event of one incarnation and the start of the next.
pub(crate) const START_GAP: u64 = 2048;
/// Revisions per millisecond of wall clock at which a start is placed.
const REVISIONS_PER_MS_BITS: u32 = 11;
/// How far the clock may stand behind the last opening before it is reported.
const CLOCK_BEHIND_MAX: Duration = Duration::from_hours(24);
/// Clocks below this instant (2026-01-01) are certainly wrong.
const CLOCK_MIN: Duration = Duration::from_hours(490_896);
/// Clocks above this instant (2100-01-01) are certainly wrong, and would use up the revisions.
const CLOCK_MAX: Duration = Duration::from_hours(1_139_568);
/// Random addition to the start when the clock cannot be trusted.
const CLOCK_JITTER: u64 = 1 << 20;

/// One opening of one store by one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incarnation {
    /// Head at the opening: the incarnation's first event is the revision after it.
    pub start: Revision,
    /// Tag of every version it issues.
    pub tag: Tag,
    /// Last durable revision; `None` while the incarnation is the current one.
    pub end: Option<Revision>,
    /// Wall clock at the opening, milliseconds since 1970.
    pub opened_ms: u64,
    /// Host name.
    pub host: String,
    /// Program version.
    pub program: String,
}

/// Every incarnation a store remembers, oldest first; the last one is current.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lineage {
    /// Identity of the store; survives backup and restore.
    pub store: uuid::Uuid,
    /// Incarnations, oldest first, never empty.
    pub incarnations: Vec<Incarnation>,
}

/// How a version from a client stands to the history of this store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Issued here, at this revision; compaction is judged per type by the caller.
    Issued(Revision),
    /// Above the head: nothing has been issued there yet.
    Future,
    /// At or below the head, but never issued here: another timeline.
    Foreign,
}

/// What the opener of a store brings along; a parameter so that tests can turn clocks.
#[derive(Clone, Debug)]
pub struct Opening {
    /// Wall clock.
    pub now: SystemTime,
    /// 64 random bits: tag, and jitter when the clock is wrong.
    pub entropy: u64,
    /// Host name.
    pub host: String,
}

impl Opening {
    /// The real clock, random bits and host name.
    pub fn from_system() -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "the one place where the clock and randomness of an opening come from"
        )]
        let (now, entropy) = (SystemTime::now(), rand::random());
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self { now, entropy, host: host.trim().to_owned() }
    }
}

/// The incarnation that an opening begins, and whether its clock was trusted.
#[derive(Clone, Debug)]
pub(crate) struct Begun {
    /// The new incarnation.
    pub(crate) incarnation: Incarnation,
    /// `false` if the clock is before the build's time, or a day behind the last opening.
    pub(crate) clock_trusted: bool,
}

/// Begins an incarnation after `last`, the last durable revision of the store ([`Revision::ZERO`]
/// for a new one): at the wall clock's place, or a gap after `last`, whichever is higher.
pub(crate) fn begin(earlier: &[Incarnation], last: Revision, opening: &Opening) -> Begun {
    let clock = opening.now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let last_opened = Duration::from_millis(earlier.iter().map(|i| i.opened_ms).max().unwrap_or_default());
    let clock_trusted = (CLOCK_MIN..CLOCK_MAX).contains(&clock) && clock + CLOCK_BEHIND_MAX >= last_opened;
    // A clock outside the believable range must not place the start: 19 digits and 53 bits rest on it.
    let place = clock.clamp(CLOCK_MIN, CLOCK_MAX);
    let mut start = (last.0 + START_GAP).max((place.as_millis() as u64) << REVISIONS_PER_MS_BITS);
    if !clock_trusted {
        start += (opening.entropy >> 32) % CLOCK_JITTER;
    }
    assert!(start < REVISION_MAX, "revisions are used up");
    // Neighbours in time must differ even when their clocks do not.
    let taken = earlier.last().map(|i| i.tag);
    let mut tag = tag_from(opening.entropy);
    if Some(tag) == taken {
        tag = tag_from(u64::from(tag.value()));
    }
    let incarnation = Incarnation {
        start: Revision(start),
        tag,
        end: None,
        opened_ms: clock.as_millis() as u64,
        host: opening.host.clone(),
        program: env!("CARGO_PKG_VERSION").to_owned(),
    };
    Begun { incarnation, clock_trusted }
}

fn tag_from(entropy: u64) -> Tag {
    Tag::new((entropy % 1023) as u16 + 1).expect("in 1..=1023")
}

impl Lineage {
    /// The incarnation of this process.
    pub fn current(&self) -> &Incarnation {
        self.incarnations.last().expect("a lineage has a current incarnation")
    }

    /// The version of a revision, if some incarnation issued it (heads at openings included).
    pub fn version_of(&self, revision: Revision, head: Revision) -> Option<ResourceVersion> {
        self.incarnations
            .iter()
            .rev()
            .find(|i| i.start <= revision && revision <= i.end.unwrap_or(head))
            .map(|i| ResourceVersion::new(revision, i.tag))
    }

    /// Judges a version: issued here up to `head`, still to come, or of another timeline (D3).
    pub fn classify(&self, version: ResourceVersion, head: Revision) -> Standing {
        let revision = version.revision();
        if revision > head {
            return Standing::Future;
        }
        let issued = self.incarnations.iter().any(|i| {
            Some(i.tag) == version.tag() && i.start <= revision && revision <= i.end.unwrap_or(head)
        });
        if issued { Standing::Issued(revision) } else { Standing::Foreign }
    }
}

#[cfg(test)]
mod tests;

//! Readers of every level, and the judgement of every answer (13.4): what it promises it has, what is refused
//! is refused as documented, and no age is below the true one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::StatusCode;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;
use tokio::task::JoinSet;

use super::truth::{ANCHORS, Found, Truth, anchor, collection};
use crate::stand::SHARDS;
use crate::view::{GROUP, KINDS, Kind, place};
use crate::wire::{Answer, Server};

const READERS: u64 = 6;
/// Pause of a reader.
const PAUSE: Duration = Duration::from_millis(20);
/// A read waits for 3 s; the rest is for a busy machine.
const REFUSED_WITHIN: Duration = Duration::from_secs(18);
/// What reads ask for that are bounded.
const BOUND: Duration = Duration::from_secs(5);

/// How a read asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// `freshness=source`.
    Source,
    /// Nothing: by default the source for one shard, the store for all.
    Unset,
    /// `maxStaleness=5s`.
    Bounded,
    /// `freshness=store`.
    Store,
    /// `resourceVersion=0`.
    Any,
}

/// What it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Of {
    /// A list of a shard.
    Shard(usize),
    /// One object of a shard that is there.
    One(usize),
    /// A list of all shards.
    All,
}

const LEVELS: [Level; 5] = [Level::Source, Level::Unset, Level::Bounded, Level::Store, Level::Any];
const SCOPES: [Of; 5] = [Of::Shard(0), Of::Shard(1), Of::All, Of::One(0), Of::One(1)];

/// What a read came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    Served,
    /// Served with a warning.
    Warned,
    Refused,
    /// An object that need not be there.
    Absent,
    /// Nobody answered, who need not.
    Nothing,
}

/// What is broken: it decides what may be answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Weather {
    /// The cache may be away, or stand still.
    pub(super) away: bool,
    /// Its store was lost, and not everything is back.
    pub(super) lost: bool,
    /// What was lost of one shard cannot be back.
    pub(super) dark: bool,
    /// Nobody can say what the source has, by shard.
    pub(super) mute: [bool; SHARDS.len()],
}

/// Where all readers are judged.
pub(super) struct Court {
    cache: Server,
    truth: Arc<Truth>,
    weather: Mutex<Weather>,
    /// Newest version of a list that was seen.
    newest: AtomicU64,
    wrong: Mutex<Vec<String>>,
    counts: Mutex<BTreeMap<(Level, Outcome), usize>>,
    /// Answers that had an age.
    ages: AtomicU64,
}

/// One read.
struct Read {
    of: Of,
    level: Level,
    kind: &'static Kind,
    name: Option<String>,
    newest: u64,
    sent: Instant,
    /// When it was sent.
    weather: Weather,
}

impl Level {
    fn query(self) -> &'static str {
        match self {
            Self::Source => "?freshness=source",
            Self::Unset => "",
            Self::Bounded => "?maxStaleness=5s",
            Self::Store => "?freshness=store",
            Self::Any => "?resourceVersion=0",
        }
    }

    /// What was completed longer than this before the request is in the answer.
    fn slack(self, of: Of) -> Option<Duration> {
        match self {
            Self::Source => Some(Duration::ZERO),
            Self::Unset if of != Of::All => Some(Duration::ZERO),
            Self::Bounded => Some(BOUND),
            _ => None,
        }
    }
}

impl Of {
    /// Which shards, by number.
    fn numbers(self) -> std::ops::Range<usize> {
        match self {
            Self::Shard(at) | Self::One(at) => at..at + 1,
            Self::All => 0..SHARDS.len(),
        }
    }

    fn shards(self) -> &'static [&'static str] {
        &SHARDS[self.numbers()]
    }
}

/// The path of a type's list, or of one of its objects.
pub(super) fn path(of: Of, kind: &Kind, name: Option<&str>) -> String {
    match (of, name) {
        (Of::All, _) => format!("{}/apis/{GROUP}/v1/{}", place("*"), kind.plural),
        (Of::Shard(at), _) => format!("{}/apis/{GROUP}/v1/{}", place(SHARDS[at]), kind.plural),
        (Of::One(at), name) => {
            format!("{}{}/{}", place(SHARDS[at]), collection(kind), name.unwrap_or_default())
        }
    }
}

impl Court {
    pub(super) fn new(cache: &Server, truth: &Arc<Truth>) -> Arc<Self> {
        Arc::new(Self {
            cache: cache.clone(),
            truth: Arc::clone(truth),
            weather: Mutex::default(),
            newest: AtomicU64::default(),
            wrong: Mutex::default(),
            counts: Mutex::default(),
            ages: AtomicU64::default(),
        })
    }

    /// Readers; they end when this is dropped.
    pub(super) fn readers(self: &Arc<Self>, seed: u64) -> JoinSet<()> {
        let mut readers = JoinSet::new();
        for reader in 0..READERS {
            let (court, mut random) = (Arc::clone(self), StdRng::seed_from_u64(seed * 100 + reader));
            readers.spawn(async move {
                loop {
                    let (of, level) = (SCOPES[random.random_range(0..5)], LEVELS[random.random_range(0..5)]);
                    let kind = &KINDS[random.random_range(0..KINDS.len())];
                    court.read(of, level, kind, random.random_range(0..ANCHORS)).await;
                    tokio::time::sleep(PAUSE).await;
                }
            });
        }
        readers
    }

    /// Something breaks, or is well again. To be called before the former is shown, and before the latter.
    pub(super) fn change(&self, change: impl FnOnce(&mut Weather)) {
        change(&mut self.weather.lock());
    }

    /// What must not have been, so far.
    pub(super) fn wrong(&self) -> Vec<String> {
        self.wrong.lock().clone()
    }

    /// How many reads there were, by level and what they came to; and how many ages.
    pub(super) fn counts(&self) -> (BTreeMap<(Level, Outcome), usize>, u64) {
        (self.counts.lock().clone(), self.ages.load(Ordering::Relaxed))
    }

    /// Everything that can be asked, once; what each came to.
    pub(super) async fn roll_call(&self) -> Vec<(Of, Level, Outcome)> {
        let sorts = SCOPES.iter().flat_map(|of| LEVELS.map(|level| (*of, level)));
        let asked = sorts.flat_map(|(of, level)| KINDS.iter().map(move |kind| (of, level, kind)));
        let reads = asked.map(async |(of, level, kind)| (of, level, self.read(of, level, kind, 1).await));
        futures::future::join_all(reads).await
    }

    async fn read(&self, of: Of, level: Level, kind: &'static Kind, number: usize) -> Outcome {
        let name = match of {
            Of::One(at) if number.is_multiple_of(2) => self.truth.newest(SHARDS[at], kind),
            Of::One(_) => Some(anchor(number)),
            _ => None,
        };
        let (newest, weather) = (self.newest.load(Ordering::SeqCst), *self.weather.lock());
        let read = Read { of, level, kind, name, newest, weather, sent: Instant::now() };
        let path = format!("{}{}", path(of, kind, read.name.as_deref()), level.query());
        let answer = self.cache.answer(&path).await;
        let outcome = self.judge(&read, answer).unwrap_or_else(|wrong| {
            self.wrong.lock().push(format!("{path}, {:?} after it was sent: {wrong}", read.sent.elapsed()));
            Outcome::Nothing
        });
        *self.counts.lock().entry((level, outcome)).or_default() += 1;
        outcome
    }

    fn judge(&self, read: &Read, answer: Result<Answer, String>) -> Result<Outcome, String> {
        let now = *self.weather.lock();
        let is_away = read.weather.away || now.away;
        let answer = match answer {
            Err(error) => return if is_away { Ok(Outcome::Nothing) } else { Err(error) },
            Ok(answer) if is_away && answer.status == StatusCode::SERVICE_UNAVAILABLE => {
                return Ok(Outcome::Nothing);
            }
            Ok(answer) => answer,
        };
        match answer.status {
            StatusCode::OK => self.served(read, now, &answer),
            StatusCode::INTERNAL_SERVER_ERROR => refused(read, now, &answer),
            StatusCode::NOT_FOUND => self.absent(read),
            _ => Err("is no answer".to_owned()),
        }
        .map_err(|wrong| {
            let body = if answer.status == StatusCode::OK { &Value::Null } else { &answer.body };
            format!("{wrong}: {} {:?} {body}", answer.status, answer.headers)
        })
    }

    fn served(&self, read: &Read, now: Weather, answer: &Answer) -> Result<Outcome, String> {
        let complete = answer.header("x-cache-complete");
        if read.of == Of::All && read.weather.dark && now.dark {
            return Err("all shards are shown, and one is not here".to_owned());
        }
        let is_mute = |at: usize| read.weather.mute[at] && now.mute[at];
        if read.level.slack(read.of) == Some(Duration::ZERO) && read.of.numbers().any(is_mute) {
            return Err("nobody can know this".to_owned());
        }
        // Both are expected, and nothing of them is shown before they are synced, but what is asked for by name.
        let is_lost = read.weather.lost || now.lost;
        if complete != "true" && !(is_lost && read.name.is_some() && complete == "false") {
            return Err(format!("complete is {complete:?}"));
        }
        let found = found(&answer.body)?;
        if let Some(strange) = found.keys().find(|shard| !read.of.shards().contains(&&***shard)) {
            return Err(format!("{strange} was not asked for"));
        }
        let age = answer.header("x-cache-age");
        let age = match age.parse().map(Duration::from_secs) {
            Ok(age) => Some(age),
            Err(_) if age == "unknown" => None,
            Err(error) => return Err(format!("age {age:?}: {error}")),
        };
        let warns = !answer.header("warning").is_empty();
        if read.level.slack(read.of).is_some() && (warns || age.is_none()) {
            return Err("it was confirmed, and is said not to be".to_owned());
        }
        self.ages.fetch_add(u64::from(age.is_some()), Ordering::Relaxed);
        let promises = [("its level", read.level.slack(read.of)), ("its age", age)];
        for (shard, (promise, slack)) in read.of.shards().iter().flat_map(|s| promises.map(|p| (*s, p))) {
            let nothing = Found::new();
            let found = found.get(shard).unwrap_or(&nothing);
            if let Some(since) = slack.and_then(|slack| read.sent.checked_sub(slack))
                && let Some(lie) = self.truth.lie(shard, read.kind, read.name.as_deref(), found, since)
            {
                return Err(format!("{promise} promises more: {lie}"));
            }
            let lost = || (0..ANCHORS).map(anchor).find(|name| !found.contains_key(name));
            if read.name.is_none()
                && let Some(lost) = lost()
            {
                return Err(format!("{shard}'s {lost} has always been there, and is missing"));
            }
        }
        if read.name.is_none() {
            self.goes_forward(read, now, &answer.body)?;
        }
        Ok(if warns { Outcome::Warned } else { Outcome::Served })
    }

    /// Who asks for the store's state gets no older one than anybody had before.
    fn goes_forward(&self, read: &Read, now: Weather, list: &Value) -> Result<(), String> {
        let version = list["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse::<u64>().ok());
        let version = version.ok_or("a list without a version")?;
        // Those of another store compare with nothing.
        if read.weather.lost != now.lost {
            return Ok(());
        }
        if version < read.newest && read.level != Level::Any {
            return Err(format!("is of {version}, and {} was seen before", read.newest));
        }
        self.newest.fetch_max(version, Ordering::SeqCst);
        Ok(())
    }

    /// Every object that is asked for was there before it was asked for, and some always were.
    fn absent(&self, read: &Read) -> Result<Outcome, String> {
        let (Of::One(at), Some(name)) = (read.of, &read.name) else {
            return Err("lists are always there".to_owned());
        };
        if name.starts_with("anchor") {
            return Err("has always been there".to_owned());
        }
        let since = read.level.slack(read.of).and_then(|slack| read.sent.checked_sub(slack));
        let lie = |since| self.truth.lie(SHARDS[at], read.kind, Some(name), &Found::new(), since);
        since.and_then(lie).map_or(Ok(Outcome::Absent), Err)
    }
}

/// Whether it says why, whom it is about, and in time.
fn refused(read: &Read, now: Weather, answer: &Answer) -> Result<Outcome, String> {
    let took = read.sent.elapsed();
    let details = &answer.body["details"];
    let causes = details["causes"].as_array().filter(|causes| !causes.is_empty());
    let Some(causes) = causes.filter(|_| answer.body["reason"] == "ServerTimeout") else {
        return Err("is no refusal with its causes".to_owned());
    };
    if answer.headers.contains_key("retry-after") || details["retryAfterSeconds"] != 1 {
        return Err("libraries would repeat it by themselves".to_owned());
    }
    if took > REFUSED_WITHIN && !(read.weather.away || now.away) {
        return Err("came too late".to_owned());
    }
    let is_lost = read.weather.lost || now.lost;
    for cause in causes {
        let (reason, field) = (cause["reason"].as_str().unwrap_or(""), cause["field"].as_str().unwrap_or(""));
        if !field.strip_prefix("shards/").is_some_and(|shard| read.of.shards().contains(&shard)) {
            return Err(format!("{field} has nothing to do with it"));
        }
        let is_due = match reason {
            "ShardUnconfirmed" => read.level.slack(read.of).is_some(),
            "NeverSynced" => is_lost && read.of != Of::All,
            "Incomplete" => is_lost && read.of == Of::All,
            _ => false,
        };
        if !is_due {
            return Err(format!("{reason} of {field} cannot be"));
        }
    }
    Ok(Outcome::Refused)
}

/// Names and versions in a list, or of an object, by shard.
fn found(body: &Value) -> Result<BTreeMap<String, Found>, String> {
    let mut all = BTreeMap::<String, Found>::new();
    let items = body["items"].as_array().map_or(std::slice::from_ref(body), Vec::as_slice);
    for item in items {
        let metadata = &item["metadata"];
        let shard = metadata["annotations"]["kcp.io/shard"].as_str();
        let (Some(shard), Some(name), Some(size)) =
            (shard, metadata["name"].as_str(), item["spec"]["size"].as_u64())
        else {
            return Err(format!("no object of ours: {item}"));
        };
        if all.entry(shard.to_owned()).or_default().insert(name.to_owned(), size).is_some() {
            return Err(format!("{shard} has {name} twice"));
        }
    }
    Ok(all)
}

//! Frames of a pusher: reading them, and writing them for those who push.

use std::borrow::Cow;
use std::io::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use shardcache_storage::{Digest, Election, TypeName};

/// One frame of a pusher.
#[derive(Debug)]
pub enum ClientFrame<'a> {
    /// The first frame of a stream.
    Hello(Box<Hello>),
    /// Every type the shard pushes; on the control stream.
    Catalog(Vec<TypeName>),
    /// A complete list begins.
    SyncStart {
        /// Number of the sync, chosen by the pusher.
        sync: u64,
    },
    /// An object as it is in the source.
    Upsert(Upsert<'a>),
    /// An object was removed from the source.
    Delete(Delete<'a>),
    /// The list was complete.
    SyncEnd {
        /// Number of the sync.
        sync: u64,
        /// Source version of the list.
        version: u64,
        /// What was sent.
        sum: Sum,
        /// Whether an empty list may empty a cell.
        allow_empty: bool,
    },
    /// Everything up to a version was sent; on the control stream, without one, a sign of life.
    Progress {
        /// The source version and what was sent up to it.
        at: Option<(u64, Sum)>,
        /// The barrier that this answers.
        barrier: Option<u64>,
        /// How the pusher came to know that it may; with a barrier only, and only as far as the name is known.
        provider: Option<Provider>,
    },
    /// The pusher goes away in order.
    Bye,
}

/// How a pusher came to know that it has sent everything up to a barrier's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Provider {
    /// The watch that it follows the source by came there by itself, or a list was of it.
    Watch,
    /// It watched anew for a few seconds, and the watch said so before its end.
    RollingWatch,
    /// It compared the metadata of all objects.
    MetadataDiff,
    /// The source says on demand how far its events are.
    Direct,
}

impl Provider {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Watch, Self::RollingWatch, Self::MetadataDiff, Self::Direct];

    /// The name, in frames and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Watch => "watch",
            Self::RollingWatch => "rollingWatch",
            Self::MetadataDiff => "metadataDiff",
            Self::Direct => "direct",
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|provider| provider.as_str() == name)
    }
}

/// Number and digest of the objects a pusher has sent and not deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Number of objects.
    pub count: u64,
    /// Sum of [`shardcache_storage::entry_digest`] over them.
    pub digest: Digest,
}

/// Who pushes what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// Name of the holder, for people.
    pub holder: String,
    /// Identity of the process.
    pub instance: String,
    /// The election it has won.
    pub election: Option<Election>,
    /// Whether a holder that is alive may be replaced.
    pub takeover: bool,
    /// What the source calls itself; on the stream of a cell.
    pub source: String,
    /// The source's newest version, by a quorum read; on the stream of a cell.
    pub source_head: u64,
    /// Kind of the type; needed where the server does not know the type.
    pub kind: Option<String>,
    /// Whether objects have namespaces; needed where the server does not know the type.
    pub namespaced: Option<bool>,
}

/// An object as it is in the source.
#[derive(Debug)]
pub struct Upsert<'a> {
    /// Its source version.
    pub version: u64,
    /// Logical cluster.
    pub cluster: Cow<'a, str>,
    /// Namespace, if the frame says it apart from the object.
    pub namespace: Option<Cow<'a, str>>,
    /// Name, if the frame says it apart from the object.
    pub name: Option<Cow<'a, str>>,
    /// The object, as JSON.
    pub object: &'a str,
}

/// An object that is gone.
#[derive(Debug)]
pub struct Delete<'a> {
    /// Source version of the removal.
    pub version: u64,
    /// Logical cluster.
    pub cluster: Cow<'a, str>,
    /// Namespace; empty for cluster-scoped types.
    pub namespace: Cow<'a, str>,
    /// Name.
    pub name: Cow<'a, str>,
    /// Uid it had; empty if it had none.
    pub uid: Cow<'a, str>,
}

/// Any frame as it stands in a line.
#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Line<'a> {
    #[serde(rename = "type", borrow)]
    kind_of_frame: Cow<'a, str>,
    seq: u64,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    rv: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    cluster: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    namespace: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    name: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    uid: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    object: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sync: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    digest: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    allow_empty: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    barrier: Option<u64>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    provider: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    holder: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    instance: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    election: Option<ElectionField>,
    #[serde(skip_serializing_if = "Option::is_none")]
    takeover: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<SourceField>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    scope: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    types: Option<Vec<TypeField>>,
}

#[derive(Deserialize, Serialize)]
struct ElectionField {
    uid: String,
    term: u64,
}

#[derive(Deserialize, Serialize)]
struct SourceField {
    id: String,
    #[serde(rename = "headRV")]
    head: String,
}

#[derive(Deserialize, Serialize)]
struct TypeField {
    #[serde(default)]
    group: String,
    resource: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    identity: String,
}

const NAMESPACED: &str = "Namespaced";
const CLUSTER: &str = "Cluster";

/// Reads a line; its number and the frame. The error says which field is wrong.
pub fn read(line: &[u8]) -> Result<(u64, ClientFrame<'_>), String> {
    let line: Line<'_> = serde_json::from_slice(line).map_err(|error| format!("not a frame: {error}"))?;
    let seq = line.seq;
    let frame = line.frame()?;
    Ok((seq, frame))
}

impl<'a> Line<'a> {
    fn frame(self) -> Result<ClientFrame<'a>, String> {
        Ok(match &*self.kind_of_frame {
            "hello" => ClientFrame::Hello(Box::new(self.hello()?)),
            "catalog" => {
                let types = self.types.ok_or_else(|| missing("types"))?;
                let named = |t: TypeField| TypeName::with_identity(&t.group, &t.resource, &t.identity);
                ClientFrame::Catalog(types.into_iter().map(named).collect())
            }
            "syncStart" => ClientFrame::SyncStart { sync: required(self.sync, "sync")? },
            "syncEnd" => ClientFrame::SyncEnd {
                sync: required(self.sync, "sync")?,
                version: self.version()?,
                sum: self.sum()?,
                allow_empty: self.allow_empty.unwrap_or(false),
            },
            "upsert" => ClientFrame::Upsert(Upsert {
                version: self.version()?,
                cluster: self.cluster.ok_or_else(|| missing("cluster"))?,
                namespace: self.namespace,
                name: self.name,
                object: self.object.ok_or_else(|| missing("object"))?.get(),
            }),
            "delete" => ClientFrame::Delete(Delete {
                version: self.version()?,
                cluster: self.cluster.ok_or_else(|| missing("cluster"))?,
                namespace: self.namespace.unwrap_or_default(),
                name: self.name.ok_or_else(|| missing("name"))?,
                uid: self.uid.unwrap_or_default(),
            }),
            "progress" => {
                let at = match &self.rv {
                    Some(_) => Some((self.version()?, self.sum()?)),
                    None => None,
                };
                // A pusher may be newer than this server.
                let provider = self.provider.as_deref().and_then(Provider::named);
                ClientFrame::Progress { at, barrier: self.barrier, provider }
            }
            "bye" => ClientFrame::Bye,
            "" => return Err(missing("type")),
            other => return Err(format!("type: there are no frames of type {other:?}")),
        })
    }

    fn hello(&self) -> Result<Hello, String> {
        let text = |value: &Option<Cow<'_, str>>, name: &str| match value {
            Some(value) if !value.is_empty() => Ok(value.clone().into_owned()),
            _ => Err(missing(name)),
        };
        let (source, source_head) = match &self.source {
            Some(source) => (source.id.clone(), number("source.headRV", &source.head)?),
            None => (String::new(), 0),
        };
        let namespaced = match self.scope.as_deref() {
            None => None,
            Some(NAMESPACED) => Some(true),
            Some(CLUSTER) => Some(false),
            Some(_) => return Err(format!("scope: is neither {NAMESPACED} nor {CLUSTER}")),
        };
        Ok(Hello {
            holder: text(&self.holder, "holder")?,
            instance: text(&self.instance, "instance")?,
            election: self
                .election
                .as_ref()
                .map(|election| Election { uid: election.uid.as_str().into(), term: election.term }),
            takeover: self.takeover.unwrap_or(false),
            source,
            source_head,
            kind: self.kind.clone().map(Cow::into_owned),
            namespaced,
        })
    }

    fn version(&self) -> Result<u64, String> {
        number("rv", self.rv.as_deref().ok_or_else(|| missing("rv"))?)
    }

    fn sum(&self) -> Result<Sum, String> {
        let digest = self.digest.as_deref().ok_or_else(|| missing("digest"))?;
        let digest = digest.parse().map_err(|error| format!("digest: {error}"))?;
        Ok(Sum { count: required(self.count, "count")?, digest })
    }
}

impl ClientFrame<'_> {
    /// Appends the frame as a line.
    pub fn write(&self, seq: u64, to: &mut Vec<u8>) {
        if let Self::Upsert(upsert) = self {
            return upsert.write(seq, to);
        }
        let line = self.line(seq);
        serde_json::to_writer(&mut *to, &line).expect("writing to memory cannot fail");
        to.push(b'\n');
    }

    fn line(&self, seq: u64) -> Line<'_> {
        let base = |name: &'static str| Line { kind_of_frame: name.into(), seq, ..Line::default() };
        let borrowed = |text: &'_ str| Some(Cow::Owned(text.to_owned()));
        match self {
            Self::Hello(hello) => Line {
                holder: borrowed(&hello.holder),
                instance: borrowed(&hello.instance),
                election: hello
                    .election
                    .as_ref()
                    .map(|election| ElectionField { uid: election.uid.to_string(), term: election.term }),
                takeover: hello.takeover.then_some(true),
                source: (!hello.source.is_empty())
                    .then(|| SourceField { id: hello.source.clone(), head: hello.source_head.to_string() }),
                kind: hello.kind.as_deref().and_then(borrowed),
                scope: hello.namespaced.map(|yes| if yes { NAMESPACED } else { CLUSTER }.into()),
                ..base("hello")
            },
            Self::Catalog(types) => {
                let field = |name: &TypeName| TypeField {
                    group: name.group().to_owned(),
                    resource: name.resource().to_owned(),
                    identity: name.identity().to_owned(),
                };
                Line { types: Some(types.iter().map(field).collect()), ..base("catalog") }
            }
            Self::SyncStart { sync } => Line { sync: Some(*sync), ..base("syncStart") },
            Self::SyncEnd { sync, version, sum, allow_empty } => Line {
                sync: Some(*sync),
                allow_empty: allow_empty.then_some(true),
                ..base("syncEnd").at(*version, sum)
            },
            Self::Progress { at, barrier, provider } => {
                let line = base("progress");
                let line = match at {
                    Some((version, sum)) => line.at(*version, sum),
                    None => line,
                };
                let provider = provider.map(|provider| provider.as_str().into());
                Line { barrier: *barrier, provider, ..line }
            }
            Self::Delete(delete) => Line {
                rv: Some(delete.version.to_string().into()),
                cluster: Some(Cow::Borrowed(&*delete.cluster)),
                namespace: (!delete.namespace.is_empty()).then(|| Cow::Borrowed(&*delete.namespace)),
                name: Some(Cow::Borrowed(&*delete.name)),
                uid: (!delete.uid.is_empty()).then(|| Cow::Borrowed(&*delete.uid)),
                ..base("delete")
            },
            Self::Bye => base("bye"),
            Self::Upsert(_) => unreachable!("written by itself"),
        }
    }
}

impl Line<'_> {
    fn at(mut self, version: u64, sum: &Sum) -> Self {
        self.rv = Some(version.to_string().into());
        self.count = Some(sum.count);
        self.digest = Some(sum.digest.to_string().into());
        self
    }
}

impl Upsert<'_> {
    /// The object goes in as it is, without being looked at.
    fn write(&self, seq: u64, to: &mut Vec<u8>) {
        let quoted = |text: &str| serde_json::to_string(text).expect("writing to memory cannot fail");
        write!(
            to,
            r#"{{"type":"upsert","seq":{seq},"rv":"{}","cluster":{}"#,
            self.version,
            quoted(&self.cluster)
        )
        .expect("writing to memory cannot fail");
        to.extend_from_slice(b",\"object\":");
        to.extend_from_slice(self.object.as_bytes());
        to.extend_from_slice(b"}\n");
    }
}

fn required(value: Option<u64>, name: &str) -> Result<u64, String> {
    value.ok_or_else(|| missing(name))
}

fn missing(name: &str) -> String {
    format!("{name}: is required")
}

/// A version of the source: a plain decimal, as Kubernetes compares them (KEP-5504).
pub fn number(name: &str, text: &str) -> Result<u64, String> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !plain || text.len() > 1 && text.starts_with('0') {
        return Err(format!("{name}: {text:?} is not a plain decimal number"));
    }
    text.parse().map_err(|_| format!("{name}: {text} is larger than 64 bits"))
}

//! The labels of metrics: closed enums, so that the number of time series is known in advance.

use std::fmt::Write as _;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};

/// Declares a closed label value: an enum and the text of each variant.
macro_rules! label {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// Every value.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The text of the label.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }

        impl EncodeLabelValue for $name {
            fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
                encoder.write_str(self.as_str())
            }
        }
    };
}

label! {
    /// Why a read is refused that asks for more than can be shown.
    Refusal {
        /// The source's newest state could not be confirmed.
        Unconfirmed = "unconfirmed",
        /// The shard was never synced.
        NeverSynced = "never_synced",
        /// A shard that is expected was never synced.
        Incomplete = "incomplete",
    }
}

label! {
    /// What a direct probe came to.
    ProbeOutcome {
        /// The source has nothing else than the copy.
        Confirmed = "confirmed",
        /// It has something else.
        Behind = "behind",
        /// It is not known to be the source that was copied.
        Foreign = "foreign",
        /// It does not say.
        Failed = "failed",
    }
}

label! {
    /// What a request does, in Kubernetes' words.
    Verb {
        /// Reads one object.
        Get = "get",
        /// Lists a collection.
        List = "list",
        /// Watches a collection or an object.
        Watch = "watch",
        /// POST of an object.
        Create = "create",
        /// PUT of an object.
        Update = "update",
        /// PATCH of an object.
        Patch = "patch",
        /// DELETE of an object.
        Delete = "delete",
        /// DELETE of a collection.
        DeleteCollection = "deletecollection",
        /// Discovery, OpenAPI, health, metrics, administration, and paths that do not exist.
        Other = "other",
    }
}

label! {
    /// What a request occupies while it is answered.
    Class {
        /// Anything that reads and ends.
        Read = "read",
        /// Anything that writes.
        Write = "write",
        /// Watches.
        Watch = "watch",
    }
}

label! {
    /// A limit that turns requests or connections away.
    Limit {
        /// Open connections.
        Connections = "connections",
        /// Reads in flight.
        ReadsInFlight = "reads_in_flight",
        /// Writes in flight.
        WritesInFlight = "writes_in_flight",
        /// Open watches.
        Watches = "watches",
        /// Push streams.
        Pushes = "pushes",
        /// Bytes of lists being written.
        ListBytes = "list_bytes",
        /// Size of a request's head.
        Head = "head",
        /// Time a client may take to send a request's head.
        HeadTime = "head_time",
        /// Size of a request's body.
        Body = "body",
        /// Time a client may take to send a request's body.
        BodyTime = "body_time",
        /// Time a client may take without reading any of the answer.
        StalledReader = "stalled_reader",
    }
}

label! {
    /// Where a watcher reads from.
    State {
        /// Has everything that is published.
        Active = "active",
        /// Behind, reading the in-memory history.
        Lagging = "lagging",
        /// Behind the in-memory history, reading the durable log.
        Cold = "cold",
    }
}

label! {
    /// Why a watch ended.
    Reason {
        /// The time the client asked for is over.
        Timeout = "timeout",
        /// The client went away.
        Client = "client",
        /// The history after its position is gone (410).
        Expired = "expired",
        /// It did not read for too long, or fell too far behind.
        Slow = "slow",
        /// The server is shutting down.
        Drain = "drain",
        /// Something failed inside.
        Error = "error",
    }
}

label! {
    /// Why a write was refused.
    WriteRefusal {
        /// It is not legal (400, 413, 415, 422).
        Invalid = "invalid",
        /// The object exists (409).
        AlreadyExists = "already_exists",
        /// The object does not exist (404).
        NotFound = "not_found",
        /// A precondition does not hold (409).
        Conflict = "conflict",
        /// The store's queue is full (429).
        Overloaded = "overloaded",
        /// The disk is full, or the store is read-only or closed (503).
        Unavailable = "unavailable",
        /// Something failed inside (500).
        Internal = "internal",
    }
}

label! {
    /// Where the description of a served type comes from.
    Source {
        /// The table of built-in types.
        Builtin = "builtin",
        /// Cached CustomResourceDefinitions.
        Crd = "crd",
        /// The configuration file.
        Config = "config",
        /// A shard's pusher.
        Pushed = "pushed",
        /// Objects whose description is gone.
        Leftover = "leftover",
    }
}

label! {
    /// What a pushed frame came to.
    FrameOutcome {
        /// An object created or changed.
        Put = "put",
        /// An object removed, by a delete or at the end of a sync.
        Deleted = "deleted",
        /// An object that was there already.
        Unchanged = "unchanged",
        /// At or below the position.
        Duplicate = "duplicate",
        /// Overtaken by a newer state of the object.
        Stale = "stale",
        /// Sent before the pusher knew that it has to sync.
        Ignored = "ignored",
    }
}

label! {
    /// Why a push stream ended.
    PushEnd {
        /// The pusher said goodbye.
        Bye = "bye",
        /// The pusher went away without a word.
        Gone = "gone",
        /// Nothing was heard for too long.
        Silent = "silent",
        /// The pusher did not read what it was told for too long.
        Stalled = "stalled",
        /// Somebody else holds the shard.
        Fenced = "fenced",
        /// Somebody else holds the shard and may not be replaced.
        Held = "held",
        /// Another stream of the type began.
        Superseded = "superseded",
        /// A frame breaks the rules, or an object is not legal.
        Invalid = "invalid",
        /// The store cannot write.
        Unavailable = "unavailable",
        /// Something failed inside.
        Internal = "internal",
        /// The server is shutting down.
        Drain = "drain",
    }
}

label! {
    /// What a shard is to views over all shards.
    Role {
        /// They wait for it.
        Expected = "expected",
        /// It came later.
        Joining = "joining",
        /// They may be shown without it.
        Excused = "excused",
    }
}

impl From<shardcache_storage::Role> for Role {
    fn from(role: shardcache_storage::Role) -> Self {
        match role {
            shardcache_storage::Role::Expected => Self::Expected,
            shardcache_storage::Role::Joining => Self::Joining,
            shardcache_storage::Role::Excused => Self::Excused,
        }
    }
}

/// Label set `verb`, `code`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByCode {
    /// What the request does.
    pub verb: Verb,
    /// HTTP status code.
    pub code: u16,
}

/// Declares a label set of one label.
macro_rules! label_set {
    ($(#[$doc:meta])* $name:ident { $field:ident: $value:ident }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
        pub struct $name {
            /// The only label.
            pub $field: $value,
        }

        impl From<$value> for $name {
            fn from($field: $value) -> Self {
                Self { $field }
            }
        }
    };
}

label_set! {
    /// Label set `verb`.
    ByVerb { verb: Verb }
}
label_set! {
    /// Label set `class`.
    ByClass { class: Class }
}
label_set! {
    /// Label set `limit`.
    ByLimit { limit: Limit }
}
label_set! {
    /// Label set `state`.
    ByState { state: State }
}
label_set! {
    /// Label set `reason`.
    ByReason { reason: Reason }
}
label_set! {
    /// Label set `reason`.
    ByWriteRefusal { reason: WriteRefusal }
}
label_set! {
    /// Label set `outcome`.
    ByOutcome { outcome: FrameOutcome }
}
label_set! {
    /// Label set `outcome`.
    ByProbeOutcome { outcome: ProbeOutcome }
}
label_set! {
    /// Label set `reason`.
    ByPushEnd { reason: PushEnd }
}
label_set! {
    /// Label set `role`.
    ByRole { role: Role }
}
label_set! {
    /// Label set `source`.
    BySource { source: Source }
}
label_set! {
    /// Label set `reason`.
    ByRefusal { reason: Refusal }
}

/// Label set `shard`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByShard {
    /// Its name.
    pub shard: String,
}

/// Label set `shard`, `state`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByShardState {
    /// Its name.
    pub shard: String,
    /// A state of cells.
    pub state: &'static str,
}

/// Label set `shard`, `group`, `resource`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByCell {
    /// Its shard.
    pub shard: String,
    /// API group of its type; empty for the core group.
    pub group: String,
    /// Plural name of its type.
    pub resource: String,
}

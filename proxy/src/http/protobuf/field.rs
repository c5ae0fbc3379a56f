//! How one field of a message is read and shown.

use super::schema::Message;

/// One field of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub(super) number: u64,
    /// Name in JSON.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) presence: Presence,
}

/// What a field holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Text,
    /// Any integer; in JSON a number.
    Int,
    Bool,
    /// In JSON base64.
    Bytes,
    /// Text by text.
    Map,
    /// `metav1.Time`: seconds and nanoseconds; in JSON RFC 3339 with whole seconds.
    Time,
    /// `metav1.MicroTime`: in JSON RFC 3339 with microseconds.
    MicroTime,
    /// `metav1.FieldsV1`: JSON inside.
    Json,
    /// Another message.
    Of(&'static Message),
}

/// When a field is shown in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// When it is sent.
    Kept,
    /// When it is sent and not zero.
    Omitted,
    /// As often as it is sent, in an array.
    List,
    /// The same, but `null` when it is not sent at all.
    NullableList,
    /// The fields of the message stand in its place.
    Inline,
}

pub(super) const fn kept(number: u64, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, presence: Presence::Kept }
}

pub(super) const fn omitted(number: u64, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, presence: Presence::Omitted }
}

pub(super) const fn list(number: u64, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, presence: Presence::List }
}

pub(super) const fn nullable_list(number: u64, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, presence: Presence::NullableList }
}

pub(super) const fn inline(number: u64, kind: Kind) -> Field {
    Field { number, name: "", kind, presence: Presence::Inline }
}

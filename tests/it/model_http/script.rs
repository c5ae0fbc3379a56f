//! Random scripts of requests, in terms that survive shrinking.

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;

use super::oracle::{Labels, View};
use crate::checker::Version;

/// A place for an object: shard, cluster, namespace (unused by cluster-scoped types) and name.
pub(crate) const PLACES: [[&str; 4]; 7] = [
    ["amber", "root", "default", "one"],
    ["amber", "root", "default", "one-more"],
    ["amber", "root", "zone", "two"],
    ["amber", "zeta", "default", "one"],
    ["amber-2", "root", "default", "one"],
    ["beryl", "root", "zone", "two"],
    ["beryl", "zeta", "zone", "one"],
];

/// One thing somebody does.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Create { kind: usize, place: usize, content: Content },
    Replace { kind: usize, place: usize, content: Content, version: Told },
    Patch { kind: usize, place: usize, content: Content, version: Told },
    Delete { kind: usize, place: usize, uid: Told, version: Told },
    DeleteCollection { view: View },
    Get { kind: usize, place: usize },
    List { view: View, mode: Mode, limit: Option<u8> },
    Watch { view: View, from: From },
    Resume { watch: usize },
    Leave { watch: usize },
    Compact { kind: usize, to: usize },
    Restart,
}

/// What changes about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) tier: Option<&'static str>,
    pub(crate) value: u8,
}

/// Which uid or version a write names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Nothing,
    Right,
    Wrong,
}

/// How a LIST names its version.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mode {
    Newest,
    Any,
    NotOlderThan(usize),
    Exact(usize),
    /// A version and nothing else: not older than it, or exactly it where a limit is given.
    Plain(usize),
    Future,
    Foreign,
}

/// Where a WATCH begins.
#[derive(Clone, Copy, Debug)]
pub(crate) enum From {
    /// After a version that was shown.
    Shown(usize),
    /// At the version of a LIST made now.
    Listed,
    /// With initial events and a marked bookmark, as asked for.
    Marked,
    /// With the same, from no version; `true`: `resourceVersion=0`.
    Synthetic(bool),
    Foreign,
    /// After a version of this timeline's tags that nobody was ever shown; not drawn, but tried at restarts.
    Unissued(Version),
    Future,
}

fn content() -> impl Strategy<Value = Content> {
    (of(select(&["a", "b", "c"][..])), 0..3_u8).prop_map(|(tier, value)| Content { tier, value })
}

fn told() -> impl Strategy<Value = Told> {
    prop_oneof![3 => Just(Told::Nothing), 3 => Just(Told::Right), 1 => Just(Told::Wrong)]
}

fn view() -> impl Strategy<Value = View> {
    let labels = prop_oneof![
        5 => Just(Labels::All),
        1 => Just(Labels::Is("a")),
        1 => Just(Labels::In),
        1 => Just(Labels::Not("b")),
        1 => Just(Labels::Has),
        1 => Just(Labels::HasNot),
    ];
    (
        0..2_usize,
        of(select(&["amber", "amber-2", "beryl"][..])),
        of(select(&["root", "zeta"][..])),
        of(select(&["default", "zone"][..])),
        labels,
        prop_oneof![4 => Just(None), 1 => Just(Some("one"))],
    )
        .prop_map(|(kind, shard, cluster, namespace, labels, name)| View {
            kind,
            shard,
            cluster,
            // Cluster-scoped types have no namespaces in their paths.
            namespace: namespace.filter(|_| kind == 1),
            labels,
            name,
        })
}

fn mode() -> impl Strategy<Value = Mode> {
    let at = 0..200_usize;
    prop_oneof![
        3 => Just(Mode::Newest),
        2 => Just(Mode::Any),
        2 => at.clone().prop_map(Mode::NotOlderThan),
        3 => at.clone().prop_map(Mode::Exact),
        2 => at.prop_map(Mode::Plain),
        1 => Just(Mode::Future),
        1 => Just(Mode::Foreign),
    ]
}

fn from() -> impl Strategy<Value = From> {
    prop_oneof![
        4 => (0..200_usize).prop_map(From::Shown),
        3 => Just(From::Listed),
        2 => Just(From::Marked),
        1 => any::<bool>().prop_map(From::Synthetic),
        1 => Just(From::Foreign),
        1 => Just(From::Future),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    let at = (0..2_usize, 0..PLACES.len());
    prop_oneof![
        8 => (at.clone(), content())
            .prop_map(|((kind, place), content)| Act::Create { kind, place, content }),
        6 => (at.clone(), content(), told())
            .prop_map(|((kind, place), content, version)| Act::Replace { kind, place, content, version }),
        6 => (at.clone(), content(), told())
            .prop_map(|((kind, place), content, version)| Act::Patch { kind, place, content, version }),
        5 => (at.clone(), told(), told())
            .prop_map(|((kind, place), uid, version)| Act::Delete { kind, place, uid, version }),
        1 => view().prop_map(|view| Act::DeleteCollection { view }),
        2 => at.prop_map(|(kind, place)| Act::Get { kind, place }),
        8 => (view(), mode(), of(1..4_u8)).prop_map(|(view, mode, limit)| Act::List { view, mode, limit }),
        6 => (view(), from()).prop_map(|(view, from)| Act::Watch { view, from }),
        3 => (0..8_usize).prop_map(|watch| Act::Resume { watch }),
        1 => (0..8_usize).prop_map(|watch| Act::Leave { watch }),
        2 => (0..2_usize, 0..200_usize).prop_map(|(kind, to)| Act::Compact { kind, to }),
        1 => Just(Act::Restart),
    ]
}

/// A script of at most `acts` acts.
pub(crate) fn script(acts: usize) -> impl Strategy<Value = Vec<Act>> {
    vec(act(), 1..acts)
}

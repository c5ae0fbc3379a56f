//! Staging, hand-stepped: guards are judged in order against what the batch has done so far.

mod push;

use super::*;
use crate::key::Key;
use crate::object::tests::draft_of;

fn state() -> State {
    State::empty(ResourceVersion::new(Revision(1_790_000_000_000 << 11), tag()))
}

fn tag() -> Tag {
    Tag::new(5).expect("legal")
}

fn cowboys() -> TypeName {
    TypeName::new("wildwest.dev", "cowboys")
}

fn put(name: &str, uid: &str, guard: Guard) -> Change {
    let key = Key::new("amber", "root", "", name).expect("legal");
    let action = Action::Put(draft_of(&key, uid));
    Change { type_name: cowboys(), key, guard, action }
}

fn delete(name: &str, guard: Guard) -> Change {
    let key = Key::new("amber", "root", "", name).expect("legal");
    Change { type_name: cowboys(), key, guard, action: Action::Delete }
}

/// A batch of ordinary writes, with what came of each.
struct Ran {
    state: State,
    events: Vec<Arc<Event>>,
    results: Vec<Result<Arc<Event>, Refusal>>,
}

fn run(base: &State, changes: Vec<Change>) -> Ran {
    let mut sessions = Sessions::default();
    let mut stage = Stage::new(base, tag(), &mut sessions, |_| 7);
    let results = changes.into_iter().map(|change| stage.change(change)).collect();
    let Staged { state, events, .. } = stage.finish();
    Ran { state, events, results }
}

/// `+` created, `~` changed, `-` deleted, `!` refused, in order of the results.
fn script(staged: &Ran) -> String {
    let sign = |result: &Result<Arc<Event>, Refusal>| match result {
        Err(_) => '!',
        Ok(event) if event.previous.is_none() => '+',
        Ok(event) if event.current.is_none() => '-',
        Ok(_) => '~',
    };
    staged.results.iter().map(sign).collect()
}

#[test]
fn each_change_sees_the_ones_before_it() {
    let must_exist = || Guard { exists: Some(true), ..Guard::default() };
    let must_not = || Guard { exists: Some(false), ..Guard::default() };
    let changes = vec![
        put("a", "", must_exist()),
        put("a", "", must_not()),
        put("a", "", must_not()),
        put("a", "", must_exist()),
        delete("a", must_exist()),
        delete("a", Guard::default()),
        put("a", "", Guard::default()),
    ];
    let base = state();
    let staged = run(&base, changes);
    assert_eq!(script(&staged), "!+!~-!+");
    assert_eq!(staged.events.len(), 4);
    let revisions: Vec<_> = staged.events.iter().map(|event| event.revision.0 - base.head().0).collect();
    assert_eq!(revisions, [1, 2, 3, 4], "one revision per event, none for a refusal");
    assert_eq!(staged.state.head(), staged.events[3].revision);
    assert!(base.is_empty(), "the base is untouched");
}

#[test]
fn the_chain_of_previous_revisions_is_unbroken_and_ends_at_a_deletion() {
    let none = Guard::default;
    let changes = vec![put("a", "", none()), put("a", "", none()), delete("a", none()), put("a", "", none())];
    let staged = run(&state(), changes);
    let [created, updated, deleted, again] = &staged.events[..] else { panic!("four events") };
    let previous = |event: &Arc<Event>| event.current.as_ref().map(Object::previous_revision);
    assert_eq!(previous(created), Some(Revision::ZERO));
    assert_eq!(previous(updated), Some(created.revision));
    assert_eq!(deleted.previous.as_ref().map(Object::revision), Some(updated.revision));
    assert_eq!(previous(again), Some(Revision::ZERO));
}

#[test]
fn another_uid_makes_two_events_of_one_change() {
    let staged = run(&state(), vec![put("a", "u-1", Guard::default()), put("a", "u-2", Guard::default())]);
    assert_eq!((staged.results.len(), staged.events.len()), (2, 3));
    let result = staged.results[1].as_ref().expect("applied");
    assert!(Arc::ptr_eq(result, &staged.events[2]));
    assert_eq!(staged.state.len(), 1);
}

#[test]
fn a_uid_guard_is_judged_before_the_change_of_uid() {
    let base = run(&state(), vec![put("a", "u-1", Guard::default())]).state;
    let guard = Guard { uid: Some("u-2".into()), ..Guard::default() };
    let staged = run(&base, vec![put("a", "u-2", guard)]);
    assert!(matches!(staged.results[0], Err(Refusal::UidMismatch(_))));
    assert!(staged.events.is_empty());
}

#[test]
fn the_version_in_the_body_is_the_events() {
    let staged = run(&state(), vec![put("a", "u-1", Guard::default())]);
    let object = staged.events[0].current.as_ref().expect("a put");
    assert_eq!(object.resource_version(), staged.events[0].resource_version);
    assert_eq!(object.type_id(), 7);
    let again = Object::decode(object.revision(), object.record()).expect("the checksum fits");
    assert_eq!(again.body_bytes(), object.body_bytes());
}

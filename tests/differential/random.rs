//! Scripts that nobody wrote: requests from a grammar, against both servers, shrunk when the answers differ.
//!
//! A case is a list of [`Op`]s on one type, with a few names, labels and versions so that they meet; it
//! becomes a script in the usual notation, and that is what a failure prints: it can be pasted into
//! `scripts/`. Nothing in it depends on how fast a server is.

use std::fmt::Write as _;

use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::Union;

/// Versions that a case remembers: those of its first writes.
const REMEMBERED: usize = 6;

/// Labels of the object that ends a case, and selectors that select it.
const LAST_LABELS: &str = r#"{"app":"a","n":"5"}"#;
const SELECTING_THE_LAST: [&str; 6] = ["", "app", "app=a", "app in (a,b)", "n>4", "!tier"];

/// In which form an answer may be asked for; none is the usual one.
const OBJECT_FORMS: [&str; 6] = ["", "", "", "$table", "$partial;v=v1", "application/yaml"];
const LIST_FORMS: [&str; 6] = ["", "", "", "$table", "$partiallist;v=v1", "application/yaml"];
const EVENT_FORMS: [&str; 4] = ["", "", "$table", "$partial;v=v1"];

/// One thing that a client does.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Create {
        name: &'static str,
        labels: &'static str,
        spec: &'static str,
    },
    /// An update based on the newest version, or on one that may be old.
    Put {
        name: &'static str,
        labels: &'static str,
        spec: &'static str,
        based_on: Option<usize>,
    },
    Merge {
        name: &'static str,
        patch: &'static str,
    },
    Json {
        name: &'static str,
        patch: &'static str,
    },
    Delete {
        name: &'static str,
    },
    /// A deletion of one version, which may be old.
    DeleteIf {
        name: &'static str,
        based_on: Option<usize>,
    },
    DeleteCollection {
        selector: String,
    },
    Get {
        name: &'static str,
        version: String,
        form: &'static str,
    },
    List {
        all: bool,
        selection: String,
        version: String,
        limit: Option<i64>,
        form: &'static str,
    },
    Pages {
        all: bool,
        selection: String,
        limit: i64,
    },
    /// A watch that is opened when all is over, and read to its end.
    Replay {
        all: bool,
        selection: String,
        start: String,
        form: &'static str,
    },
    /// A watch that is open while the rest happens, and read to an object that all of them select.
    Follow {
        all: bool,
        selector: &'static str,
        start: String,
    },
}

/// A list of operations on namespaced or cluster-scoped objects.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) namespaced: bool,
    pub(crate) ops: Vec<Op>,
}

pub(crate) fn cases() -> impl Strategy<Value = Case> {
    (any::<bool>(), prop::collection::vec(op(), 1..24)).prop_map(|(namespaced, ops)| Case { namespaced, ops })
}

fn op() -> impl Strategy<Value = Op> {
    let name = || select(vec!["a", "b", "c", "d"]);
    let labels = || select(vec!["", r#"{"app":"a"}"#, r#"{"app":"b","n":"5"}"#, r#"{"app":"","tier":"x"}"#]);
    let spec = || select(vec!["{}", r#"{"color":"red"}"#, r#"{"color":"blue","size":5}"#, r#"{"on":true}"#]);
    let merge = vec![
        "{}",
        r#"{"metadata":{"labels":{"app":"a"}}}"#,
        r#"{"metadata":{"labels":null}}"#,
        r#"{"metadata":{"labels":{"app":null,"n":"7"},"annotations":{"k":"v"}}}"#,
        r#"{"metadata":{"name":"other"}}"#,
        r#"{"spec":{"color":"red"}}"#,
        r#"{"spec":null}"#,
        r#"{"spec":{"list":[1,{"a":null}],"map":{"x":null}}}"#,
        r#"{"metadata":{"resourceVersion":"1"}}"#,
    ];
    let json = vec![
        "[]",
        r#"[{"op":"add","path":"/metadata/labels","value":{"app":"b"}}]"#,
        r#"[{"op":"replace","path":"/metadata/labels/app","value":"a"}]"#,
        r#"[{"op":"remove","path":"/metadata/labels"}]"#,
        r#"[{"op":"test","path":"/spec/color","value":"red"},{"op":"replace","path":"/spec/color","value":"blue"}]"#,
        r#"[{"op":"add","path":"/spec/list","value":[1,2]},{"op":"add","path":"/spec/list/1","value":9},{"op":"remove","path":"/spec/list/0"}]"#,
        r#"[{"op":"copy","from":"/metadata/name","path":"/spec/was"}]"#,
        r#"[{"op":"move","from":"/spec/color","path":"/spec/colour"}]"#,
    ];
    let limit = || select(vec![-1, 0, 1, 2, 3, 100]);
    prop_oneof![
        6 => (name(), labels(), spec()).prop_map(|(name, labels, spec)| Op::Create { name, labels, spec }),
        3 => (name(), labels(), spec(), prop::option::of(0..REMEMBERED))
            .prop_map(|(name, labels, spec, based_on)| Op::Put { name, labels, spec, based_on }),
        3 => (name(), select(merge)).prop_map(|(name, patch)| Op::Merge { name, patch }),
        3 => (name(), select(json)).prop_map(|(name, patch)| Op::Json { name, patch }),
        2 => name().prop_map(|name| Op::Delete { name }),
        1 => selection().prop_map(|selector| Op::DeleteCollection { selector }),
        1 => (name(), prop::option::of(0..REMEMBERED))
            .prop_map(|(name, based_on)| Op::DeleteIf { name, based_on }),
        2 => (name(), version(), select(OBJECT_FORMS.to_vec()))
            .prop_map(|(name, version, form)| Op::Get { name, version, form }),
        5 => (any::<bool>(), selection(), version(), prop::option::of(limit()), select(LIST_FORMS.to_vec()))
            .prop_map(|(all, selection, version, limit, form)| Op::List { all, selection, version, limit, form }),
        2 => (any::<bool>(), selection(), 1..4i64)
            .prop_map(|(all, selection, limit)| Op::Pages { all, selection, limit }),
        3 => (any::<bool>(), selection(), start(), select(EVENT_FORMS.to_vec()))
            .prop_map(|(all, selection, start, form)| Op::Replay { all, selection, start, form }),
        2 => (any::<bool>(), select(SELECTING_THE_LAST.to_vec()), start())
            .prop_map(|(all, selector, start)| Op::Follow { all, selector, start }),
    ]
}

/// Parameters that say which state is wanted.
fn version() -> impl Strategy<Value = String> {
    let matching = select(vec!["", "&resourceVersionMatch=Exact", "&resourceVersionMatch=NotOlderThan"]);
    let plain = select(vec!["", "&resourceVersion=0", "&resourceVersion=abc"]);
    let plain = plain.prop_map(str::to_owned);
    let remembered = (0..REMEMBERED).prop_map(|index| format!("&resourceVersion=$t{index}"));
    (prop_oneof![1 => plain, 2 => remembered], matching).prop_map(|(version, matching)| version + matching)
}

/// Parameters that say where a watch starts.
fn start() -> impl Strategy<Value = String> {
    let fixed = select(vec![
        "",
        "&resourceVersion=0",
        "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
        "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0",
        "&sendInitialEvents=false&resourceVersionMatch=NotOlderThan",
        "&sendInitialEvents=true",
        "&resourceVersionMatch=Exact&resourceVersion=5",
    ]);
    let remembered = (0..REMEMBERED).prop_map(|index| format!("&resourceVersion=$t{index}"));
    prop_oneof![fixed.prop_map(str::to_owned), remembered]
}

/// Selector parameters, legal ones and others.
fn selection() -> impl Strategy<Value = String> {
    let label = Union::new([
        select(vec![
            "app",
            "!app",
            "app=a",
            "app==b",
            "app!=a",
            "app=",
            "app in (a,b)",
            "app notin (a, )",
            "n>4",
            "n<6",
            "tier,app",
            "app=a,n",
            "!tier,app!=",
        ])
        .prop_map(str::to_owned)
        .boxed(),
        "[apn!=(), <>]{0,7}".boxed(),
        "(app|n|in|notin|!|=|==|!=|\\(|\\)|,| |a|5|>|<){0,6}".boxed(),
    ]);
    let field = Union::new([
        select(vec![
            "metadata.name=a",
            "metadata.name!=a",
            "metadata.namespace=n1",
            "metadata.name=a,metadata.name=b",
        ])
        .prop_map(str::to_owned)
        .boxed(),
        "(metadata.name|metadata.namespace|spec.color|=|==|!=|,|a|\\\\|n1){0,5}".boxed(),
    ]);
    let label = label.prop_map(|text| format!("&labelSelector={}", encoded(&text)));
    let field = field.prop_map(|text| format!("&fieldSelector={}", encoded(&text)));
    // By namespace, because each server makes up its own uids.
    let shard =
        select(vec![("0000000000000000", "8000000000000000"), ("8000000000000000", "10000000000000000")]);
    let shard = shard.prop_map(|(start, end)| {
        let range = format!("shardRange(object.metadata.namespace, '0x{start}', '0x{end}')");
        format!("&shardSelector={}", encoded(&range))
    });
    prop_oneof![3 => Just(String::new()), 4 => label, 2 => field, 1 => shard]
}

fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() || byte == b'.' {
            encoded.push(char::from(byte));
        } else {
            write!(encoded, "%{byte:02X}").expect("a string takes everything");
        }
        encoded
    })
}

impl Case {
    /// The case in the notation of scripts.
    pub(crate) fn script(&self) -> String {
        let mut writer = Writer::new(self.namespaced);
        for (number, op) in self.ops.iter().enumerate() {
            writer.op(number, op);
        }
        writer.finish()
    }
}

/// Writes a case down.
struct Writer {
    script: String,
    /// Names of the paths to the collection over all namespaces and in one, and of the kind.
    all: &'static str,
    one: &'static str,
    kind: &'static str,
    /// Writes so far.
    written: usize,
    followed: Vec<usize>,
    replays: Vec<(usize, String, &'static str)>,
}

impl Writer {
    fn new(namespaced: bool) -> Self {
        let (all, one, kind) = if namespaced {
            ("$allwidgets", "$widgets", "$widget")
        } else {
            ("$gadgets", "$gadgets", "$gadget")
        };
        let script = format!("== random made up\nGET {all}?limit=1\n");
        let mut writer = Self { script, all, one, kind, written: 0, followed: vec![], replays: vec![] };
        for index in 0..REMEMBERED {
            writer.line(&format!("  -> t{index} = /metadata/resourceVersion"));
        }
        writer
    }

    fn line(&mut self, text: &str) {
        self.script.push_str(text);
        self.script.push('\n');
    }

    fn op(&mut self, number: usize, op: &Op) {
        let one = self.one;
        match op {
            Op::Create { name, labels, spec } => {
                let body = self.object(name, labels, spec, "");
                self.write(&format!("POST {one}\n  {body}"), name);
            }
            Op::Put { name, labels, spec, based_on } => {
                let version = based_on.map_or(format!("$v{name}"), |index| format!("$t{index}"));
                let body = self.object(name, labels, spec, &format!(",\"resourceVersion\":\"{version}\""));
                self.write(&format!("PUT {one}/{name}\n  {body}"), name);
            }
            Op::Merge { name, patch } => {
                let media = "Content-Type: application/merge-patch+json";
                self.write(&format!("PATCH {one}/{name}\n  {media}\n  {patch}"), name);
            }
            Op::Json { name, patch } => {
                let media = "Content-Type: application/json-patch+json";
                self.write(&format!("PATCH {one}/{name}\n  {media}\n  {patch}"), name);
            }
            Op::Delete { name } => self.line(&format!("DELETE {one}/{name}")),
            Op::DeleteCollection { selector } => self.line(&format!("DELETE {one}?{selector}")),
            Op::DeleteIf { name, based_on } => {
                let version = based_on.map_or(format!("$v{name}"), |index| format!("$t{index}"));
                let options = format!("{{\"preconditions\":{{\"resourceVersion\":\"{version}\"}}}}");
                self.line(&format!("DELETE {one}/{name}\n  {options}"));
            }
            Op::Get { name, version, form } => {
                self.settled(false);
                self.line(&format!("GET {one}/{name}?{version}"));
                self.form(form);
            }
            Op::List { all, selection, version, limit, form } => {
                // A list of one name is a read of one key to kube, which takes no limit and no exact version.
                let limit = limit.filter(|_| !selection.contains("metadata.name%3D"));
                let limit = limit.map(|limit| format!("&limit={limit}")).unwrap_or_default();
                let path = self.settled(*all);
                self.line(&format!("GET {path}?{selection}{version}{limit}"));
                self.form(form);
            }
            Op::Pages { all, selection, limit } => {
                let path = if *all { self.all } else { one };
                self.line(&format!("PAGES {path}?limit={limit}{selection}"));
            }
            Op::Replay { all, selection, start, form } => {
                let path = if *all { self.all } else { one };
                self.replays.push((
                    number,
                    format!("{path}?watch=1&timeoutSeconds=1{selection}{start}"),
                    form,
                ));
            }
            Op::Follow { all, selector, start } => {
                let (path, selector) = (self.settled(*all), encoded(selector));
                self.line(&format!("WATCH w{number} {path}?watch=1&labelSelector={selector}{start}"));
                self.followed.push(number);
            }
        }
    }

    /// The form that the answer to the last line is asked for in.
    fn form(&mut self, form: &str) {
        if !form.is_empty() {
            self.line(&format!("  Accept: {form}"));
        }
    }

    /// A write whose version is remembered, as the object's newest and as one of the first.
    fn write(&mut self, request: &str, name: &str) {
        self.line(request);
        self.line(&format!("  -> v{name} = /metadata/resourceVersion"));
        if self.written < REMEMBERED {
            self.line(&format!("  -> t{} = /metadata/resourceVersion", self.written));
        }
        self.written += 1;
    }

    /// A collection after a consistent list: before it, kube's cache may serve reads of any state from
    /// behind the last write.
    fn settled(&mut self, all: bool) -> &'static str {
        let path = if all { self.all } else { self.one };
        self.line(&format!("GET {path}?limit=1"));
        path
    }

    fn object(&self, name: &str, labels: &str, spec: &str, version: &str) -> String {
        // Empty labels are kept here and dropped by kube, after which patches fit one and not the other.
        let labels = if labels.is_empty() { String::new() } else { format!(",\"labels\":{labels}") };
        format!("{{{},\"metadata\":{{\"name\":\"{name}\"{labels}{version}}},\"spec\":{spec}}}", self.kind)
    }

    /// Makes the last object, and reads every watch: the open ones up to it, the others to their ends.
    fn finish(mut self) -> String {
        let last = self.object("last", LAST_LABELS, "{}", "");
        self.line(&format!("POST {}\n  {last}", self.one));
        self.settled(true);
        for number in std::mem::take(&mut self.followed) {
            self.line(&format!("UNTIL w{number} last"));
        }
        let replays = std::mem::take(&mut self.replays);
        for (number, path, form) in &replays {
            self.line(&format!("WATCH w{number} {path}"));
            self.form(form);
        }
        for (number, ..) in replays {
            self.line(&format!("END w{number}"));
        }
        self.script
    }
}

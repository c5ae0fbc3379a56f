use std::sync::Arc;

use super::*;
use crate::types::Types;

fn part(text: &str) -> Part {
    if text == "*" { Part::Any } else { Part::One(text.into()) }
}

fn built_in(types: &Arc<Types>, group: &str, version: &str, resource: &str) -> Table {
    let (shard, cluster) = (part("s"), part("c"));
    let info = types.resolve(&shard, &cluster, group, version, resource, None).expect("built in");
    Table::new(info.version(version), None)
}

fn row(table: &Table, object: &Value) -> Vec<(String, Value)> {
    let body = object.to_string();
    let metadata = object["metadata"].to_string();
    let at = body.find(&metadata).expect("its own metadata") as u32;
    let metadata = shardcache_storage::Span { at, len: metadata.len() as u32 };
    let key = KeyParts { shard: "s", cluster: "c", namespace: "", name: "x" };
    let cells = table.cells(Some(key), body.as_bytes(), Spans { metadata, ..Spans::default() });
    let names = table.columns.iter().map(|prepared| prepared.column.name.clone());
    names.zip(cells.as_array().expect("cells").iter().cloned()).collect()
}

#[test]
fn built_in_types_have_the_columns_of_kube_s_printers() {
    let types = Types::builtin(Vec::new());
    let created = "2000-01-01T00:00:00Z";
    let role = json!({"metadata": {"name": "x", "creationTimestamp": created}, "rules": [{}]});
    let table = built_in(&types, "rbac.authorization.k8s.io", "v1", "clusterroles");
    assert!(!table.whole, "a role is not parsed for its name and date");
    assert_eq!(row(&table, &role), [("Name".into(), json!("x")), ("Created At".into(), json!(created))]);

    let binding = json!({
        "metadata": {"name": "x"}, "roleRef": {"kind": "Role", "name": "r"},
        "subjects": [{"kind": "Group", "name": "g"}],
    });
    let table = built_in(&types, "rbac.authorization.k8s.io", "v1", "rolebindings");
    assert_eq!(
        row(&table, &binding),
        [
            ("Name".into(), json!("x")),
            ("Role".into(), json!("Role/r")),
            ("Age".into(), Value::Null),
            ("Users".into(), json!("")),
            ("Groups".into(), json!("g")),
            ("ServiceAccounts".into(), json!("")),
        ]
    );
    let event = built_in(&types, "", "v1", "events");
    let names: Vec<&str> = event.columns.iter().map(|prepared| prepared.column.name.as_str()).collect();
    assert_eq!(names[..4], ["Last Seen", "Type", "Reason", "Object"]);
    assert_eq!(names[9..], ["Name"], "an event's name comes last");
    let shard =
        json!({"metadata": {"name": "x", "labels": {"region": "eu"}}, "spec": {"baseURL": "https://x"}});
    let table = built_in(&types, "core.kcp.io", "v1alpha1", "shards");
    assert_eq!(
        row(&table, &shard)[1..3],
        [("Region".into(), json!("eu")), ("URL".into(), json!("https://x"))]
    );
}

#[test]
fn definitions_have_every_field_and_only_extra_columns_are_of_low_priority() {
    let types = Types::builtin(Vec::new());
    let (shard, cluster) = (part("*"), part("*"));
    for info in types.in_scope(&shard, &cluster) {
        for version in &info.versions {
            let table = Table::new(Some(version), None);
            let definitions = table.definitions();
            let definitions = definitions.as_array().expect("a list");
            assert!(definitions.len() > 1, "{:?}", info.name);
            for definition in definitions {
                let fields: Vec<&String> = definition.as_object().expect("an object").keys().collect();
                assert_eq!(fields, ["name", "type", "format", "description", "priority"]);
            }
            let named = definitions.iter().filter(|definition| definition["format"] == "name").count();
            assert_eq!(named, 1, "{:?}", info.name);
            let unreadable = table.columns.iter().any(|prepared| matches!(prepared.cell, Cell::Nothing));
            assert!(!unreadable, "{:?} has a path that is not understood", info.name);
        }
    }
}

#[test]
fn a_path_that_is_not_understood_shows_nothing_and_the_others_do() {
    let columns =
        vec![Column::path("Odd", "string", "{range .x}"), Column::path("Size", "integer", ".spec.size")];
    let version = VersionInfo { columns, ..VersionInfo::new("v1") };
    let table = Table::new(Some(&version), None);
    let shown = row(&table, &json!({"metadata": {"name": "x"}, "spec": {"size": 4}}));
    assert_eq!(shown[1..], [("Odd".into(), Value::Null), ("Size".into(), json!(4))]);
}

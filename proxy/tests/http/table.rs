use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::world::{Answer, Lines, WIDGETS, World};

/// What `kubectl get` sends.
const KUBECTL: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,\
    application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
const CONCRETE: &str = "/services/cache/shards/s/clusters/c/apis/example.dev/v1/namespaces/n/widgets";

async fn table(world: &World, path: &str) -> Value {
    let answer = answer(world, path).await;
    assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let table = answer.json();
    assert_eq!((&table["kind"], &table["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
    table
}

async fn answer(world: &World, path: &str) -> Answer {
    world.call(Method::GET, path, &[("accept", KUBECTL)]).await
}

async fn watch(world: &World, path: &str) -> Lines {
    world.watch_at(path, &[("accept", KUBECTL)]).await
}

fn columns(table: &Value) -> Vec<String> {
    let columns = table["columnDefinitions"].as_array().expect("columns");
    let rows = table["rows"].as_array().expect("rows");
    for row in rows {
        assert_eq!(row["cells"].as_array().expect("cells").len(), columns.len(), "{row}");
    }
    let name = |column: &Value| format!("{}:{}", text(&column["name"]), column["priority"]);
    columns.iter().map(name).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("a text: {value}"))
}

fn cells(table: &Value) -> Vec<Value> {
    table["rows"].as_array().expect("rows").iter().map(|row| row["cells"].clone()).collect()
}

async fn two_widgets(world: &World) {
    world.put("s/c/n/a", "", &json!({"color": "red", "size": 3})).await;
    world.put("t/d/n/b", "", &json!({"color": null, "size": 2.5})).await;
}

#[tokio::test]
async fn b085_lists_gets_and_watches_show_the_same_columns() {
    let world = World::new();
    two_widgets(&world).await;
    let expected = ["Name:0", "Color:0", "Size:1"];
    let list = table(&world, CONCRETE).await;
    assert_eq!(columns(&list), expected);
    assert_eq!(cells(&list), [json!(["a", "red", 3])]);
    assert_eq!(list["metadata"], json!({"resourceVersion": world.head()}));
    let row = &list["rows"][0]["object"];
    assert_eq!(
        (&row["kind"], &row["apiVersion"]),
        (&json!("PartialObjectMetadata"), &json!("meta.k8s.io/v1"))
    );
    assert_eq!(row["metadata"]["annotations"]["kcp.io/shard"], "s");
    assert!(row.get("spec").is_none());

    let one = table(&world, &format!("{CONCRETE}/a")).await;
    assert_eq!((columns(&one), &one["rows"]), (expected.map(str::to_owned).to_vec(), &list["rows"]));
    assert_eq!(one["metadata"]["resourceVersion"], row["metadata"]["resourceVersion"]);

    let mut lines = watch(&world, &format!("{CONCRETE}?watch=true")).await;
    let (kind, event) = lines.event().await;
    assert_eq!((kind.as_str(), columns(&event), &event["rows"]), ("ADDED", columns(&one), &one["rows"]));
    assert_eq!(event["metadata"], one["metadata"]);
}

#[tokio::test]
async fn b085_a_wildcard_says_where_each_row_is() {
    let world = World::new();
    two_widgets(&world).await;
    let list = table(&world, WIDGETS).await;
    assert_eq!(columns(&list), ["Name:0", "Shard:0", "Cluster:0", "Color:0", "Size:1"]);
    assert_eq!(
        cells(&list),
        [json!(["a", "s", "c", "red", 3]), json!(["b", "t", "d", "<no value>", 2])],
        "an integer column cuts fractions off, as in kube-apiserver"
    );
    let one_shard = WIDGETS.replace("shards/*", "shards/t");
    assert_eq!(columns(&table(&world, &one_shard).await), ["Name:0", "Cluster:0", "Color:0", "Size:1"]);
    let one_cluster = WIDGETS.replace("clusters/*", "clusters/c");
    assert_eq!(columns(&table(&world, &one_cluster).await), ["Name:0", "Shard:0", "Color:0", "Size:1"]);
}

#[tokio::test]
async fn a_version_without_columns_has_name_and_age() {
    let world = World::new();
    two_widgets(&world).await;
    let list = table(&world, &CONCRETE.replace("/v1/", "/v1beta1/")).await;
    assert_eq!(columns(&list), ["Name:0", "Age:0"]);
    assert_eq!(cells(&list), [json!(["a", null])], "the object has no creationTimestamp");
    let empty = table(&world, &CONCRETE.replace("/n/", "/other/")).await;
    assert_eq!((columns(&empty).len(), &empty["rows"]), (3, &json!([])));
}

#[tokio::test]
async fn rows_hold_what_was_asked_for_of_their_objects() {
    let world = World::new();
    two_widgets(&world).await;
    let object = |table: &Value| table["rows"][0]["object"].clone();
    let list = |include: &str| format!("{CONCRETE}?includeObject={include}");
    assert_eq!(object(&table(&world, &list("None")).await), Value::Null);
    assert_eq!(object(&table(&world, &list("Metadata")).await)["kind"], "PartialObjectMetadata");
    assert_eq!(object(&table(&world, &list("")).await)["kind"], "PartialObjectMetadata");
    assert_eq!(object(&table(&world, &list("Object")).await), world.json(&format!("{CONCRETE}/a")).await);
    let beta = CONCRETE.replace("/v1/", "/v1beta1/");
    let shown = object(&table(&world, &format!("{beta}?includeObject=Object")).await);
    assert_eq!(shown["apiVersion"], "example.dev/v1beta1");
    for path in [list("metadata"), format!("{CONCRETE}/a?includeObject=x"), list("All&watch=true")] {
        let (code, reason, message) = answer(&world, &path).await.status();
        assert_eq!((code, reason.as_str()), (400, "BadRequest"));
        let expected = "Unable to convert to Table as requested: includeObject: Invalid value: ";
        assert!(message.starts_with(expected), "{message}");
        assert!(message.ends_with(": must be 'Metadata', 'Object', 'None', or empty"), "{message}");
    }
    assert_eq!(world.get(&list("x")).await.status, StatusCode::OK, "only tables ask for it");
}

#[tokio::test]
async fn pages_of_a_table_carry_what_pages_of_a_list_carry() {
    let world = World::new();
    world.fill(5, 10).await;
    let mut path = format!("{CONCRETE}?limit=2");
    let mut seen = vec![];
    for remaining in [3, 1, 0] {
        let page = table(&world, &path).await;
        let metadata = &page["metadata"];
        assert_eq!(metadata["resourceVersion"], world.head());
        assert_eq!(metadata.get("remainingItemCount"), (remaining > 0).then_some(&json!(remaining)));
        seen.extend(cells(&page).iter().map(|cells| text(&cells[0]).to_owned()));
        path = format!("{CONCRETE}?limit=2&continue={}", metadata["continue"].as_str().unwrap_or_default());
    }
    assert_eq!(seen, ["n-00000", "n-00001", "n-00002", "n-00003", "n-00004"]);
    let half = "shardSelector=shardRange(object.metadata.uid,'0x0000000000000000','0x8000000000000000')";
    let sharded = table(&world, &format!("{CONCRETE}?{half}")).await;
    assert!(sharded["metadata"]["shardInfo"]["selector"].is_string(), "{}", sharded["metadata"]);
}

#[tokio::test]
async fn a_table_of_many_is_sent_frame_by_frame_and_whole() {
    let world = World::new();
    world.fill(3_000, 600).await;
    let list = table(&world, WIDGETS).await;
    let rows = list["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 3_000);
    assert_eq!(rows[2_999]["cells"], json!(["n-02999", "s", "c", null, null]));
}

#[tokio::test]
async fn b086_whatever_the_first_event_is_it_has_the_columns_and_no_other_has() {
    let world = World::new();
    let start = world.put("s/c/n/a", "", &json!({"color": "red"})).await;
    let added = world.put("s/c/n/b", "", &json!({"color": "blue"})).await;
    let modified = world.put("s/c/n/b", "", &json!({"color": "green"})).await;
    let deleted = world.delete("s/c/n/b").await;
    for (after, kind, color) in
        [(&start, "ADDED", "blue"), (&added, "MODIFIED", "green"), (&modified, "DELETED", "green")]
    {
        let mut lines = watch(&world, &format!("{CONCRETE}?watch=true&resourceVersion={after}")).await;
        let (found, first) = lines.event().await;
        assert_eq!(found, kind);
        assert_eq!(columns(&first), ["Name:0", "Color:0", "Size:1"]);
        assert_eq!(cells(&first), [json!(["b", color, null])]);
        let version = &first["rows"][0]["object"]["metadata"]["resourceVersion"];
        assert_eq!(&first["metadata"]["resourceVersion"], version);
        if kind == "DELETED" {
            assert_eq!(*version, json!(deleted), "a deletion carries its own version");
            continue;
        }
        let (_, second) = lines.event().await;
        assert_eq!(second.get("columnDefinitions"), Some(&Value::Null), "{second}");
    }
}

#[tokio::test]
async fn b086_a_bookmark_is_a_table_with_a_row_that_carries_the_version() {
    let world = World::new();
    let query =
        "watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    for include in ["None", "Metadata", "Object"] {
        let mut lines = watch(&world, &format!("{CONCRETE}?{query}&includeObject={include}")).await;
        let (kind, table) = lines.event().await;
        assert_eq!((kind.as_str(), &table["kind"]), ("BOOKMARK", &json!("Table")));
        assert_eq!(columns(&table).len(), 3, "nothing came before it");
        assert_eq!(cells(&table), [json!(["", null, null])]);
        assert_eq!(table["metadata"]["resourceVersion"], world.head());
        let object = &table["rows"][0]["object"];
        assert_eq!(object["metadata"]["resourceVersion"], world.head(), "{include}");
        assert_eq!(object["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
        let kind = if include == "Object" { "Widget" } else { "PartialObjectMetadata" };
        assert_eq!(object["kind"], kind);
    }
}

#[tokio::test]
async fn an_error_in_a_watch_of_tables_is_a_status() {
    let world = World::new();
    let mut lines =
        watch(&world, &format!("{CONCRETE}?watch=true&resourceVersion=9999999999999999999")).await;
    let (kind, status) = lines.event().await;
    assert_eq!((kind.as_str(), &status["kind"], &status["code"]), ("ERROR", &json!("Status"), &json!(410)));
    assert_eq!(lines.line().await, None);
}

//! Watches over WebSocket, as fabric8 and browsers open them.

use std::time::Duration;

use futures::{SinkExt, StreamExt};
use http::header::{HeaderName, HeaderValue};
use serde_json::{Value, json};
use shardcache_proxy::access::{Access, Identity};
use shardcache_proxy::front::Tokens;
use shardcache_proxy::http::server::ServerConfig;
use shardcache_proxy::metrics::labels::Limit;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::sockets::Served;
use crate::world::{PATIENCE, WIDGETS, World};

type Socket = WebSocketStream<TcpStream>;

/// Opens a watch; the error is the code of the plain answer that was given instead.
async fn open(served: &Served, query: &str, headers: &[(&str, &str)]) -> Result<(Socket, String), u16> {
    let url = format!("ws://{}{WIDGETS}?watch=true&{query}", served.address);
    let mut request = url.into_client_request().expect("a legal request");
    for (name, value) in headers {
        let name = HeaderName::try_from(*name).expect("legal");
        request.headers_mut().insert(name, HeaderValue::from_str(value).expect("legal"));
    }
    let stream = TcpStream::connect(&served.address).await.expect("accepted");
    match client_async(request, stream).await {
        Ok((socket, response)) => {
            assert_eq!(response.status(), 101);
            assert!(response.headers().contains_key("audit-id"));
            let protocol = response.headers().get("sec-websocket-protocol");
            let protocol = protocol.map_or("", |value| value.to_str().expect("text")).to_owned();
            Ok((socket, protocol))
        }
        Err(Error::Http(response)) => Err(response.status().as_u16()),
        Err(error) => panic!("{error}"),
    }
}

async fn next(socket: &mut Socket) -> Option<Message> {
    let message = tokio::time::timeout(PATIENCE, socket.next()).await.expect("a message in time");
    message.map(|message| message.expect("not cut"))
}

/// The next event; pings are passed over.
async fn event(socket: &mut Socket) -> Value {
    loop {
        match next(socket).await {
            Some(Message::Text(text)) => {
                assert!(!text.contains('\n'), "{text}");
                return serde_json::from_str(&text).expect("one JSON document");
            }
            Some(Message::Ping(_)) => {}
            other => panic!("no event: {other:?}"),
        }
    }
}

#[tokio::test]
async fn w16_each_event_is_a_message_of_the_bytes_that_http_has() {
    let served = Served::new(World::new(), |_| {}).await;
    let start = served.world.head();
    let (mut socket, _) = open(&served, &format!("resourceVersion={start}"), &[]).await.expect("upgraded");
    let mut lines = served.world.watch(&format!("resourceVersion={start}")).await;
    served.world.put("s/c/n/a", "", &json!({"text": "ü".repeat(70_000)})).await;
    served.world.fill(300, 900).await;
    served.world.delete("s/c/n/a").await;
    for _ in 0..302 {
        let line = lines.line().await.expect("an event");
        let Some(Message::Text(text)) = next(&mut socket).await else { panic!("no text") };
        assert_eq!(text.as_str(), line);
    }
}

#[tokio::test]
async fn w16_initial_events_bookmarks_and_tables_are_those_of_any_watch() {
    let served = Served::new(World::new(), |_| {}).await;
    served.world.put("s/c/n/a", "", &json!({"color": "red"})).await;
    let query = "allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let (mut socket, _) = open(&served, query, &table).await.expect("upgraded");
    let first = event(&mut socket).await;
    assert_eq!((&first["type"], &first["object"]["kind"]), (&json!("ADDED"), &json!("Table")));
    assert_eq!(first["object"]["rows"][0]["cells"], json!(["a", "s", "c", "red", null]));
    let end = event(&mut socket).await;
    assert_eq!((&end["type"], &end["object"]["columnDefinitions"]), (&json!("BOOKMARK"), &Value::Null));
}

#[tokio::test]
async fn what_is_wrong_with_the_version_is_said_and_the_conversation_ends() {
    let served = Served::new(World::new(), |_| {}).await;
    let (mut socket, _) = open(&served, "resourceVersion=9999999999999999999", &[]).await.expect("upgraded");
    let error = event(&mut socket).await;
    assert_eq!((&error["type"], &error["object"]["code"]), (&json!("ERROR"), &json!(410)));
    let Some(Message::Close(Some(goodbye))) = next(&mut socket).await else { panic!("no goodbye") };
    assert_eq!(goodbye.code, CloseCode::Normal);
    // What is wrong with the request is an answer to the request.
    assert_eq!(open(&served, "labelSelector=%3D%3D", &[]).await.expect_err("refused"), 400);
    assert_eq!(open(&served, "sendInitialEvents=true", &[]).await.expect_err("refused"), 422);
}

#[tokio::test]
async fn the_first_protocol_that_is_no_token_is_chosen() {
    let tokens = Tokens::new([("token".to_owned(), Identity::named("jane", &[]))]);
    let served = Served::with_tokens(World::new(), tokens, Access::loopback()).await;
    // An empty token is nobody's, and no protocol either.
    let bearer = "base64url.bearer.authorization.k8s.io.";
    for (offered, chosen) in [
        ("v4.channel.k8s.io", "v4.channel.k8s.io"),
        (&format!("{bearer}dG9rZW4, base64.binary.k8s.io, other"), "base64.binary.k8s.io"),
        (&format!("{bearer}, other"), "other"),
    ] {
        let (_, protocol) =
            open(&served, "", &[("sec-websocket-protocol", offered)]).await.expect("upgraded");
        assert_eq!(protocol, chosen, "{offered}");
    }
}

#[tokio::test]
async fn a_token_among_the_protocols_says_who_watches() {
    let tokens = Tokens::new([("token".to_owned(), Identity::named("jane", &[]))]);
    let served = Served::with_tokens(World::new(), tokens, Access::nobody()).await;
    let open = async |protocols: &str| {
        let headers = [("sec-websocket-protocol", protocols)];
        let headers: &[_] = if protocols.is_empty() { &[] } else { &headers };
        open(&served, "", headers).await.map(|(_, chosen)| chosen)
    };
    let bearer = "base64url.bearer.authorization.k8s.io";
    assert_eq!(
        open(&format!("{bearer}.dG9rZW4, base64.binary.k8s.io")).await.as_deref(),
        Ok("base64.binary.k8s.io")
    );
    for refused in [
        "",
        "base64.binary.k8s.io",
        &format!("{bearer}., other"),
        &format!("{bearer}.b3RoZXI, other"),
        &format!("{bearer}.dG9rZW4"),
        &format!("{bearer}.dG9rZW4, {bearer}.dG9rZW4, other"),
        &format!("{bearer}.dG9rZW4=, other"),
    ] {
        assert_eq!(open(refused).await, Err(401), "{refused}");
    }
}

#[tokio::test]
async fn d52_a_page_of_another_origin_gets_no_socket_and_fabric8_does() {
    let served = Served::new(World::new(), |_| {}).await;
    let own = format!("http://{}", served.address);
    assert!(open(&served, "", &[("origin", &own)]).await.is_ok());
    for origin in ["http://evil.example", "null", "http://127.0.0.1:1"] {
        assert_eq!(open(&served, "", &[("origin", origin)]).await.expect_err("refused"), 403, "{origin}");
    }
}

#[tokio::test]
async fn an_upgrade_that_cannot_be_made_is_a_plain_watch() {
    let served = Served::new(World::new(), |_| {}).await;
    for headers in [
        "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 8\r\nSec-WebSocket-Key: eA==\r\n",
        "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n",
        "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n",
        "Upgrade: h2c\r\nConnection: Upgrade\r\n",
    ] {
        let mut connection = served.connect().await;
        let request = format!("GET {WIDGETS}?watch=true HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
        connection.write(request).await;
        let reply = connection.reply().await;
        assert_eq!(
            (reply.status, reply.header("content-type")),
            (200, Some("application/json")),
            "{headers}"
        );
    }
}

#[tokio::test]
async fn a_ping_is_answered_and_other_messages_are_ignored() {
    let served = Served::new(World::new(), |_| {}).await;
    let (mut socket, _) = open(&served, "", &[]).await.expect("upgraded");
    socket.send(Message::text("hello")).await.expect("open");
    socket.send(Message::Ping("are you there".into())).await.expect("open");
    let Some(Message::Pong(answer)) = next(&mut socket).await else { panic!("no pong") };
    assert_eq!(&answer[..], b"are you there");
    served.world.put("s/c/n/a", "", &json!({})).await;
    assert_eq!(event(&mut socket).await["type"], "ADDED");
    // A client's goodbye is answered.
    socket.close(None).await.expect("open");
    assert!(matches!(next(&mut socket).await, Some(Message::Close(_)) | None));
    watches(&served, 0).await;
}

#[tokio::test]
async fn a_client_that_answers_no_ping_is_given_up() {
    let pace = |config: &mut ServerConfig| {
        config.keep_alive_interval = Duration::from_millis(50);
        config.keep_alive_timeout = Duration::from_secs(2);
    };
    let served = Served::new(World::new(), pace).await;
    // Reading answers pings: this one stays.
    let (mut lively, _) = open(&served, "", &[]).await.expect("upgraded");
    let reading = tokio::spawn(async move { event(&mut lively).await });
    let (silent, _) = open(&served, "", &[]).await.expect("upgraded");
    watches(&served, 1).await;
    drop(silent);
    served.world.put("s/c/n/a", "", &json!({})).await;
    assert_eq!(reading.await.expect("no panic")["type"], "ADDED");
}

#[tokio::test]
async fn d23_a_client_that_accepts_nothing_is_closed_and_others_are_not_delayed() {
    let stall = |config: &mut ServerConfig| config.stall_timeout = Duration::from_secs(1);
    let served = Served::new(World::new(), stall).await;
    let (unread, _) = open(&served, "", &[]).await.expect("upgraded");
    let (mut read, _) = open(&served, "", &[]).await.expect("upgraded");
    for round in 0..40 {
        served.world.put("s/c/n/a", "", &json!({"fill": "x".repeat(1 << 19), "round": round})).await;
        assert_eq!(event(&mut read).await["object"]["spec"]["round"], round);
    }
    watches(&served, 1).await;
    assert_eq!(served.refused(Limit::StalledReader), 1);
    drop(unread);
}

#[tokio::test]
async fn a_shutdown_ends_with_a_bookmark_and_a_goodbye() {
    let served = Served::new(World::new(), |_| {}).await;
    let start = served.world.put("s/c/n/a", "", &json!({})).await;
    let query = format!("allowWatchBookmarks=true&resourceVersion={start}");
    let (mut socket, _) = open(&served, &query, &[]).await.expect("upgraded");
    let stopping = served.server.clone();
    let down = tokio::spawn(async move { stopping.shutdown(PATIENCE).await });
    let bookmark = event(&mut socket).await;
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(bookmark["object"]["metadata"]["resourceVersion"], json!(start));
    assert!(
        matches!(next(&mut socket).await, Some(Message::Close(Some(goodbye))) if goodbye.code == CloseCode::Normal)
    );
    assert_eq!(next(&mut socket).await, None);
    assert_eq!(down.await.expect("no panic"), 0, "nothing was cut");
}

/// Waits until so many watches are open.
async fn watches(served: &Served, count: i64) {
    use shardcache_proxy::metrics::labels::Class;
    let open = || served.world.metrics().http.in_flight.get_or_create(&Class::Watch.into()).get();
    let reached = async {
        while open() != count {
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, reached).await;
    waited.unwrap_or_else(|_| panic!("{} watches are open, expected {count}", open()));
}

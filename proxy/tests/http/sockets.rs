//! Over real sockets: what only shows there.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use shardcache_proxy::access::Access;
use shardcache_proxy::front::{Front, Phase, Stage, Tokens};
use shardcache_proxy::http::server::{Server, ServerConfig};
use shardcache_proxy::metrics::labels::{Class, Limit};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::world::{PATIENCE, WIDGETS, World};

/// A world with a listener.
pub(crate) struct Served {
    pub(crate) world: World,
    pub(crate) server: Server,
    pub(crate) address: String,
}

impl Served {
    pub(crate) async fn new(world: World, configure: impl FnOnce(&mut ServerConfig)) -> Self {
        let mut config = ServerConfig::default();
        configure(&mut config);
        let front = Front::ready(world.service.clone());
        Self::listen(world, front, config, Access::loopback()).await
    }

    /// With tokens, for somebody who proves nothing else; without one they are what `otherwise` says.
    pub(crate) async fn with_tokens(world: World, tokens: Tokens, otherwise: Access) -> Self {
        let (stage, front) = Stage::new(tokens, PATIENCE);
        stage.enter(Phase::Ready(world.service.clone()));
        Self::listen(world, front, ServerConfig::default(), otherwise).await
    }

    async fn listen(world: World, front: Front, config: ServerConfig, access: Access) -> Self {
        let server = Server::new(front, config);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound").to_string();
        let accepting = server.clone();
        tokio::spawn(async move { accepting.serve_tcp(listener, access).await });
        Self { world, server, address }
    }

    pub(crate) async fn connect(&self) -> Connection {
        Connection(BufReader::new(TcpStream::connect(&self.address).await.expect("accepted")))
    }

    pub(crate) fn refused(&self, limit: Limit) -> u64 {
        self.world.metrics().http.refusals.get_or_create(&limit.into()).get()
    }
}

/// HTTP/1.1 by hand.
pub(crate) struct Connection(BufReader<TcpStream>);

/// Status, headers in lower case, and the body if it has a length.
pub(crate) struct Reply {
    pub(crate) status: u16,
    head: String,
    body: Bytes,
}

impl Connection {
    pub(crate) async fn write(&mut self, text: impl AsRef<[u8]>) {
        self.0.write_all(text.as_ref()).await.expect("the connection is open");
    }

    async fn get(&mut self, path: &str) -> Reply {
        self.write(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")).await;
        self.reply().await
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        let read = tokio::time::timeout(PATIENCE, self.0.read_line(&mut line)).await;
        read.expect("a line in time").expect("not cut");
        line
    }

    pub(crate) async fn reply(&mut self) -> Reply {
        let status_line = self.line().await;
        let status = status_line.split(' ').nth(1).unwrap_or_else(|| panic!("no status: {status_line:?}"));
        let status = status.parse().expect("a number");
        let mut head = String::new();
        loop {
            let line = self.line().await;
            if line == "\r\n" {
                break;
            }
            head.push_str(&line.to_lowercase());
        }
        let mut reply = Reply { status, head, body: Bytes::new() };
        if let Some(len) = reply.header("content-length") {
            let mut body = vec![0; len.parse().expect("a number")];
            self.0.read_exact(&mut body).await.expect("the whole body");
            reply.body = body.into();
        }
        reply
    }

    /// One chunk of a chunked body; empty at its end.
    async fn chunk(&mut self) -> Vec<u8> {
        let size = usize::from_str_radix(self.line().await.trim(), 16).expect("a chunk size");
        let mut chunk = vec![0; size + 2];
        self.0.read_exact(&mut chunk).await.expect("the whole chunk");
        assert!(chunk.ends_with(b"\r\n"));
        chunk.truncate(size);
        chunk
    }

    /// Whether the server closed the connection, having said nothing more.
    async fn ends(&mut self) -> bool {
        let mut rest = vec![];
        let read = tokio::time::timeout(PATIENCE, self.0.read_to_end(&mut rest)).await;
        // A reset is an end too.
        read.expect("it ends in time").map_or(true, |_| rest.is_empty())
    }
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }
}

fn watch_request(query: &str) -> String {
    format!("GET {WIDGETS}?watch=true&{query} HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

#[tokio::test]
async fn w13_the_head_of_a_watch_comes_at_once_and_each_event_in_one_chunk() {
    let served = Served::new(World::new(), |_| {}).await;
    let mut connection = served.connect().await;
    let started = Instant::now();
    connection.write(watch_request("resourceVersion=0")).await;
    let reply = connection.reply().await;
    assert!(started.elapsed() < Duration::from_millis(100), "{:?}", started.elapsed());
    assert_eq!((reply.status, reply.header("transfer-encoding")), (200, Some("chunked")));
    assert_eq!(reply.header("content-type"), Some("application/json"));
    for n in 0..3 {
        served.world.put("s/c/n/a", "", &json!({ "fill": "ü".repeat(5000), "n": n })).await;
        let chunk = String::from_utf8(connection.chunk().await).expect("whole characters");
        assert!(chunk.ends_with("}\n") && chunk.matches('\n').count() == 1);
    }
}

#[tokio::test]
async fn a_list_has_a_length_where_it_is_known_and_is_chunked_where_not() {
    let served = Served::new(World::new(), |_| {}).await;
    served.world.fill(900, 100).await;
    let mut connection = served.connect().await;
    let one_shard = WIDGETS.replace("shards/*", "shards/s");
    for path in [WIDGETS, &one_shard] {
        let small = connection.get(path).await;
        assert_eq!(small.json()["items"].as_array().expect("items").len(), 900);
    }
    served.world.fill(3000, 1000).await;
    let whole = connection.get(WIDGETS).await;
    assert_eq!(whole.json()["items"].as_array().expect("items").len(), 3000);
    let part = connection.get(&one_shard).await;
    assert_eq!((part.status, part.header("content-length")), (200, None));
    let mut body = vec![];
    loop {
        let chunk = connection.chunk().await;
        if chunk.is_empty() {
            break;
        }
        body.extend(chunk);
    }
    assert!(body == whole.body);
    assert_eq!(connection.get("/livez").await.status, 200);
}

async fn http2(address: &str) -> hyper::client::conn::http2::SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(address).await.expect("accepted");
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("h2c");
    tokio::spawn(connection);
    sender
}

fn get(address: &str, path: &str) -> Request<Full<Bytes>> {
    Request::get(format!("http://{address}{path}")).body(Full::default()).expect("legal")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b071_one_http2_connection_carries_500_watches_and_200_gets() {
    let served = Served::new(World::new(), |_| {}).await;
    served.world.put("s/c/n/a", "", &json!({})).await;
    let mut sender = http2(&served.address).await;
    let mut watches = vec![];
    for _ in 0..500 {
        let path = format!("{WIDGETS}?watch=true&resourceVersion={}", served.world.head());
        let response = sender.send_request(get(&served.address, &path)).await.expect("a watch");
        assert_eq!(response.status(), StatusCode::OK);
        watches.push(response.into_body());
    }
    let object = "/services/cache/shards/s/clusters/c/apis/example.dev/v1/namespaces/n/widgets/a";
    let gets = (0..200).map(|_| {
        let request = sender.send_request(get(&served.address, object));
        async move {
            let started = Instant::now();
            let response = request.await.expect("an answer");
            assert_eq!(response.status(), StatusCode::OK);
            response.into_body().collect().await.expect("a body");
            started.elapsed()
        }
    });
    let mut times = tokio::time::timeout(PATIENCE, futures::future::join_all(gets)).await.expect("in time");
    times.sort();
    assert!(times[197] < Duration::from_secs(2), "{:?}", times[197]);
    served.world.put("s/c/n/a", "", &json!({ "n": 1 })).await;
    for watch in &mut watches {
        let frame = tokio::time::timeout(PATIENCE, watch.frame()).await.expect("an event in time");
        let data = frame.expect("open").expect("not cut").into_data().expect("data");
        assert!(data.starts_with(br#"{"type":"MODIFIED","#));
    }
}

#[tokio::test]
async fn b071_the_limit_of_streams_is_advertised() {
    let served = Served::new(World::new(), |config| config.http2_streams_max = 1234).await;
    let mut connection = served.connect().await;
    connection.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;
    let mut head = [0; 9];
    connection.0.read_exact(&mut head).await.expect("a frame");
    assert_eq!(head[3], 4, "the first frame is SETTINGS");
    let mut settings = vec![0; usize::from(u16::from_be_bytes([head[1], head[2]]))];
    connection.0.read_exact(&mut settings).await.expect("the settings");
    let limit = settings.chunks(6).find(|setting| setting[..2] == [0, 3]).map(|setting| &setting[2..]);
    assert_eq!(limit, Some(&1234_u32.to_be_bytes()[..]));
}

#[tokio::test]
async fn a_body_over_the_limit_is_413_and_the_connection_goes_on() {
    let served = Served::new(World::new(), |_| {}).await;
    let path = "/services/cache/shards/s/clusters/c/apis/example.dev/v1/namespaces/n/widgets";
    let mut connection = served.connect().await;
    let body = vec![b' '; (3 << 20) + 1];
    for chunked in [false, true] {
        let length = if chunked {
            "transfer-encoding: chunked".to_owned()
        } else {
            format!("content-length: {}", body.len())
        };
        connection.write(format!("POST {path} HTTP/1.1\r\nHost: localhost\r\ncontent-type: application/json\r\n{length}\r\n\r\n")).await;
        if chunked {
            connection.write(format!("{:x}\r\n", body.len())).await;
        }
        connection.write(&body).await;
        if chunked {
            connection.write("\r\n0\r\n\r\n").await;
        }
        let reply = connection.reply().await;
        let status = reply.json();
        assert_eq!((reply.status, &status["reason"]), (413, &json!("RequestEntityTooLarge")));
        assert_eq!(status["message"], json!("Request entity too large: limit is 3145728"));
        assert_eq!(connection.get(WIDGETS).await.status, 200, "chunked: {chunked}");
    }
    assert_eq!(served.refused(Limit::Body), 2);
    // Who asks first is told without having to send anything.
    connection
        .write(format!("POST {path} HTTP/1.1\r\nHost: localhost\r\ncontent-length: 4000000\r\nexpect: 100-continue\r\n\r\n"))
        .await;
    assert_eq!(connection.reply().await.status, 413);
}

#[tokio::test]
async fn a_body_that_never_comes_is_given_up() {
    let world = World::with(|config| config.body_idle_timeout = Duration::from_millis(100));
    let served = Served::new(world, |_| {}).await;
    let path = "/services/cache/shards/s/clusters/c/apis/example.dev/v1/namespaces/n/widgets";
    let mut connection = served.connect().await;
    connection
        .write(format!("POST {path} HTTP/1.1\r\nHost: localhost\r\ncontent-length: 100\r\n\r\n{{"))
        .await;
    let reply = connection.reply().await;
    assert_eq!((reply.status, &reply.json()["reason"]), (504, &json!("Timeout")));
    assert!(connection.ends().await);
    assert_eq!(served.refused(Limit::BodyTime), 1);
}

#[tokio::test]
async fn a_body_that_trickles_is_given_up_at_the_deadline() {
    let world = World::with(|config| {
        config.body_idle_timeout = Duration::from_secs(5);
        config.request_timeout = Duration::from_millis(300);
    });
    let served = Served::new(world, |_| {}).await;
    let path = "/services/cache/shards/s/clusters/c/apis/example.dev/v1/namespaces/n/widgets";
    let mut connection = served.connect().await;
    connection
        .write(format!("POST {path} HTTP/1.1\r\nHost: localhost\r\ncontent-length: 100000\r\n\r\n"))
        .await;
    let (read, mut write) = connection.0.into_inner().into_split();
    let trickle = async {
        while write.write_all(b" ").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let mut line = String::new();
    let mut read = BufReader::new(read);
    tokio::select! {
        () = trickle => panic!("cut before an answer"),
        read = read.read_line(&mut line) => read.expect("an answer"),
    };
    assert!(line.starts_with("HTTP/1.1 504"), "{line}");
}

#[tokio::test]
async fn a_head_over_the_limits_is_431() {
    let served = Served::new(World::new(), |config| {
        config.header_bytes_max = 8 << 10;
        config.headers_max = 20;
    })
    .await;
    let mut connection = served.connect().await;
    let long = "x".repeat(9 << 10);
    let many = "h: x\r\n".repeat(25);
    for headers in [format!("long: {long}\r\n"), many] {
        connection.write(format!("GET /livez HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n")).await;
        let reply = connection.reply().await;
        assert_eq!((reply.status, &reply.json()["kind"]), (431, &json!("Status")));
        assert_eq!(connection.get("/livez").await.status, 200);
    }
    assert_eq!(served.refused(Limit::Head), 2);
    // Far beyond the limit it is not even read.
    connection
        .write(format!("GET /livez HTTP/1.1\r\nHost: localhost\r\nlong: {}\r\n\r\n", "x".repeat(100 << 10)))
        .await;
    assert_eq!(connection.reply().await.status, 431);
    assert!(connection.ends().await);
}

#[tokio::test]
async fn one_connection_more_than_allowed_is_told_and_closed() {
    let served = Served::new(World::new(), |config| config.connections_max = 2).await;
    let mut open = vec![];
    for _ in 0..2 {
        let mut connection = served.connect().await;
        assert_eq!(connection.get("/livez").await.status, 200);
        open.push(connection);
    }
    let mut third = served.connect().await;
    let reply = third.get("/livez").await;
    assert_eq!((reply.status, reply.header("retry-after")), (429, Some("1")));
    assert_eq!(reply.json()["reason"], json!("TooManyRequests"));
    assert!(third.ends().await);
    assert_eq!(served.refused(Limit::Connections), 1);
    assert_eq!(served.world.metrics().http.connections.get(), 2);
    drop(open);
    let again = async {
        while served.world.metrics().http.connections.get() > 0 {
            tokio::task::yield_now().await;
        }
        served.connect().await.get("/livez").await.status
    };
    assert_eq!(tokio::time::timeout(PATIENCE, again).await.expect("room again"), 200);
}

#[tokio::test]
async fn a_client_that_says_nothing_is_cut_but_an_idle_one_is_not() {
    let served = Served::new(World::new(), |config| config.header_timeout = Duration::from_millis(150)).await;
    let mut idle = served.connect().await;
    assert_eq!(idle.get("/livez").await.status, 200);
    let (mut silent, mut slow) = (served.connect().await, served.connect().await);
    slow.write("GET /livez HT").await;
    assert!(silent.ends().await && slow.ends().await);
    assert_eq!(served.refused(Limit::HeadTime), 2);
    assert_eq!(idle.get("/livez").await.status, 200);
}

#[tokio::test]
async fn a_head_that_trickles_is_cut_whichever_request_it_is() {
    let served = Served::new(World::new(), |config| config.header_timeout = Duration::from_secs(1)).await;
    let mut trickling = served.connect().await;
    for _ in 0..3 {
        assert_eq!(trickling.get("/livez").await.status, 200);
    }
    // A byte now and then keeps nothing alive: the whole head has its time.
    let began = Instant::now();
    trickling.write("GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Slow: ").await;
    while trickling.0.write_all(b"x").await.is_ok() {
        assert!(began.elapsed() < PATIENCE, "it goes on for ever");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(served.refused(Limit::HeadTime), 1);

    // What is no head is not judged as one: a pause between requests, a slow body, a stream.
    let pause = Duration::from_millis(1300);
    let mut honest = served.connect().await;
    assert_eq!(honest.get("/livez").await.status, 200);
    tokio::time::sleep(pause).await;
    let body = r#"{"apiVersion":"example.dev/v1","kind":"Widget","metadata":{"name":"slow"}}"#;
    let path = "/services/cache/shards/s/clusters/c/apis/example.dev/v1/namespaces/n/widgets";
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n");
    honest.write(format!("{head}Content-Length: {length}\r\n\r\n{}", &body[..10])).await;
    tokio::time::sleep(pause).await;
    honest.write(&body[10..]).await;
    assert_eq!(honest.reply().await.status, 201);
    honest.write(watch_request("resourceVersion=0")).await;
    assert_eq!(honest.reply().await.status, 200);
    tokio::time::sleep(pause).await;
    assert!(!honest.chunk().await.is_empty());
    let mut sender = http2(&served.address).await;
    for _ in 0..2 {
        let answer = sender.send_request(get(&served.address, "/livez")).await.expect("not cut");
        assert_eq!(answer.status(), 200);
        tokio::time::sleep(pause).await;
    }
    assert_eq!(served.refused(Limit::HeadTime), 1);
}

#[tokio::test]
async fn d23_a_socket_that_accepts_nothing_is_closed_and_its_watcher_gone() {
    let served = Served::new(World::new(), |config| config.stall_timeout = Duration::from_millis(200)).await;
    let mut connection = served.connect().await;
    connection.write(watch_request("resourceVersion=0")).await;
    assert_eq!(connection.reply().await.status, 200);
    let open = || served.world.metrics().http.in_flight.get_or_create(&Class::Watch.into()).get();
    assert_eq!(open(), 1);
    let flood = async {
        let mut n = 0;
        while open() > 0 {
            n += 1;
            served.world.put("s/c/n/a", "", &json!({ "fill": "x".repeat(1 << 20), "n": n })).await;
        }
    };
    tokio::time::timeout(PATIENCE, flood).await.expect("the watcher is gone");
    assert_eq!(served.refused(Limit::StalledReader), 1);
}

#[tokio::test]
async fn d59_shutdown_ends_watches_with_a_bookmark_and_idle_connections_at_once() {
    let served = Served::new(World::new(), |_| {}).await;
    let mut watching = served.connect().await;
    let query = format!("resourceVersion={}&allowWatchBookmarks=true", served.world.head());
    watching.write(watch_request(&query)).await;
    assert_eq!(watching.reply().await.status, 200);
    let mut idle = served.connect().await;
    assert_eq!(idle.get("/livez").await.status, 200);
    let version = served.world.put("s/c/n/a", "", &json!({})).await;
    assert!(watching.chunk().await.starts_with(br#"{"type":"ADDED""#));
    let cut = served.server.shutdown(PATIENCE).await;
    assert_eq!(cut, 0);
    let bookmark: Value = serde_json::from_slice(&watching.chunk().await).expect("JSON");
    assert_eq!(bookmark["type"], json!("BOOKMARK"));
    assert_eq!(bookmark["object"]["metadata"]["resourceVersion"], json!(version));
    assert!(watching.chunk().await.is_empty(), "a clean end");
    assert!(watching.ends().await && idle.ends().await);
    assert!(TcpStream::connect(&served.address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn d59_what_does_not_end_within_the_grace_is_cut() {
    let served = Served::new(World::new(), |_| {}).await;
    served.world.fill(100, 1 << 20).await;
    let mut stuck = served.connect().await;
    stuck.write(format!("GET {WIDGETS} HTTP/1.1\r\nHost: localhost\r\n\r\n")).await;
    assert_eq!(stuck.line().await, "HTTP/1.1 200 OK\r\n");
    assert_eq!(served.server.shutdown(Duration::from_millis(100)).await, 1);
}

#[tokio::test]
async fn d52_a_browser_on_the_same_host_is_refused() {
    let served = Served::new(World::new(), |_| {}).await;
    let mut connection = served.connect().await;
    for (host, extra, expected) in [
        ("localhost", "", 200),
        ("127.0.0.1:1", "", 200),
        ("evil.example", "", 403),
        ("localhost", "Origin: http://evil.example\r\n", 403),
        ("localhost", "Origin: http://localhost\r\nConnection: keep-alive\r\nUpgrade: websocket\r\n", 200),
    ] {
        connection.write(format!("GET {WIDGETS} HTTP/1.1\r\nHost: {host}\r\n{extra}\r\n")).await;
        let reply = connection.reply().await;
        assert_eq!(reply.status, expected, "{host} {extra}");
        assert!(expected == 200 || reply.json()["reason"] == json!("Forbidden"));
    }
}

#[tokio::test]
async fn a_unix_socket_serves_the_same() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("socket");
    let listener = tokio::net::UnixListener::bind(&path).expect("bound");
    let world = World::new();
    let server = Server::new(Front::ready(world.service.clone()), ServerConfig::default());
    let accepting = server.clone();
    let accepted = tokio::spawn(async move { accepting.serve_unix(listener, Access::internal()).await });
    let mut stream = tokio::net::UnixStream::connect(&path).await.expect("accepted");
    stream
        .write_all(b"GET /livez HTTP/1.1\r\nHost: any\r\nConnection: close\r\n\r\n")
        .await
        .expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nok"), "{answer}");
    assert_eq!(server.shutdown(PATIENCE).await, 0);
    accepted.await.expect("no panic").expect("no error");
}

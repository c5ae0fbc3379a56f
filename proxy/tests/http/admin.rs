use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::Full;
use shardcache_proxy::access::{Access, Identity};

use crate::world::{Answer, World, request};

const BACKUP: &str = "/services/cache/admin/backup";

#[tokio::test]
async fn d52_only_administrators_take_backups() {
    let world = World::new();
    for (access, expected) in
        [(Access::loopback(), 401), (Access::of(&Identity::shard("s")), 403), (Access::internal(), 501)]
    {
        let mut request: http::Request<Full<_>> =
            request(Method::POST, BACKUP, &[("host", "localhost")], Bytes::new());
        request.extensions_mut().insert(access);
        assert_eq!(Answer::of(world.send(request).await).await.status().0, expected);
    }
    assert_eq!(world.call(Method::DELETE, BACKUP, &[]).await.status().0, 405);
    assert_eq!(world.get("/services/cache/admin/other").await.status, StatusCode::NOT_FOUND);
}

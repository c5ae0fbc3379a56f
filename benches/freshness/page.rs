//! What is measured here and stands on `docs/benchmarks/freshness.md` beside the numbers.

use crate::harness::report::{Page, Work};
use crate::harness::scale::scaled;
use crate::{herd, idle};

pub(crate) const PAGE: Page = Page {
    name: "freshness",
    title: "Freshness",
    command: "just bench-freshness",
    works: &WORKS,
    columns: ["measured", "against"],
    legend: "What stands after the semicolon is what the figure is held against.
Where the goal begins with ≤ the ratio is the part of it, or the bound is of the figure itself; elsewhere the ratio says how many times better the figure is.",
    connections: || scaled(idle::SHARDS).max(2 * scaled(herd::READERS)),
    versions: || vec![],
    method: METHOD,
};

const WORKS: [Work; 4] = [
    Work { name: "confirmed", title: "reads of a cell that was confirmed not long ago", objects: 0 },
    Work { name: "source", title: "reads that the source confirms, one at a time", objects: 0 },
    Work { name: "herd", title: "1,000 reads at once that the source confirms", objects: 0 },
    Work { name: "idle", title: "1,000 shards of 20 types, all live and idle", objects: 0 },
];

const METHOD: &str = "## How it was measured

```sh
just bench-freshness               # everything; builds the reference unless SHARDCACHE_REFERENCE_BIN names it
just bench-freshness idle          # some works; the page has the newest results of the same binaries on this machine
just bench-freshness report        # only writes the page
SHARDCACHE_BENCH_SCALE=0.01 just bench-freshness    # tries the harness: judges no times, writes nothing
```

- The source is the reference apiserver ([tests/reference](../../tests/reference/README.md)), the cache `shardcache serve` at its defaults but for the flags that are named. Stores are in one directory, everything is plain HTTP, and servers and clients share the machine.
- **The source that says on demand how far it is** is that apiserver without its watch cache (`-watch-cache=false`), so that each of its watches is one of etcd; `POST /reference/progress`, which no kube-apiserver has, passes on etcd's own progress request, and every watch sends a bookmark of the revision that etcd answers with. The replicator is `Replicator::with_progress` of the library, in a thread of the benchmark. The run is refused if one answer rested on anything else. Its quorum LIST with `limit=1` is then a read of etcd as well.
- **Reads of a confirmed cell**: 1,000 objects of 2 KiB of one shard. The same request with `resourceVersion=0`, and with none, bounded in its staleness by the server (`--unset-rv-concrete max-age=60`) or by the query (`maxStaleness=60s`); one connection each, one read after the other in turns, and both answers must be the same bytes. The cell is confirmed every minute all the while.
- **Reads that the source confirms**: `freshness=source`, and then the source is asked for the same list itself; where it stands still, the first of the two alternates. Otherwise something is written to the source before each: an object of another type, which moves its version but tells no watch of this one, so that the replicator has to ask; or an object that is read by its name, and 404 would be an error.
- **At once**: 1,000 connections that are open already, and a GET of one object on each of them, sent as fast as one process can (`--max-requests-inflight 2000`; the default answers 429 to what is above 400). Before that something of another type is written to the source. Its LISTs are counted by its own `apiserver_request_total`; a read that comes after the second of them has begun needs a third, so with a source that answers in milliseconds it counts how long this machine takes to send 1,000 requests. The same as many reads with `resourceVersion=0` wait for nobody: what they take is what 1,000 answers take on this machine. Twice: the source above, and the apiserver with its watch cache and `shardcache replicate`, whose confirmations come from a watch that is renewed.
- **Idle**: 1,000 pushers on a connection each, with a stream for each of 20 types and one object in each, say that they live as the replicator does (5 s on the control stream, 30 s on a stream that has said nothing) and answer every barrier at once. Two watchers of all shards, one of one shard and one of the ShardViews must have received nothing when the rounds of a minute are over, and every cell must be live at the end of each. CPU is the server process's, all threads, from `/proc/PID/stat`; with `--confirm-interval 1h` the same pushers only say that they live, and the ShardViews are swept: the difference is what confirming costs, where an answer takes the place of a sign of life.

## When nothing is reported

A run ends with an error and keeps nothing if the cache's objects are not the source's (names, labels, spec), if a client saw an error, if an event came where nothing had happened, or if it was too noisy: a round in which other programs took more than {foreign} of the machine's time is repeated (as many again at most), and the middle half of a figure's rounds may span {spread} of its median (of what it is held against, where the goal is a share), unless each round against each says the same of the goal.
";

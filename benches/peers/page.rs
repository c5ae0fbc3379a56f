//! What is measured here and stands on `docs/benchmarks/peers.md` beside the numbers.

use crate::harness::report::{Page, Work};
use crate::harness::scale::scaled;
use crate::{reads, restart, watchers};

pub(crate) const PAGE: Page = Page {
    name: "peers",
    title: "Against a kube-apiserver",
    command: "just bench-peers",
    works: &WORKS,
    columns: ["shardcache", "reference"],
    legend: "A ratio is how many times better shardcache is; where the goal begins with ≤ it is which part of the reference's figure shardcache needs.
Where shardcache's time goes, and what holds back a goal that is missed, is in [peers-profile.md](peers-profile.md).",
    connections: || scaled(watchers::DISJOINT),
    versions: || vec![],
    method: METHOD,
};

/// Works of as many objects stand together: they share the servers.
const WORKS: [Work; 10] = [
    Work { name: "list", title: "full LIST, 50k × 2 KiB, `resourceVersion=0`", objects: reads::OBJECTS },
    Work { name: "gzip", title: "the same, client accepts gzip", objects: reads::OBJECTS },
    Work { name: "selector", title: "LIST with a label selector that matches 1 %", objects: reads::OBJECTS },
    Work {
        name: "watch-list",
        title: "watch-list of 50k objects, 20 clients at once",
        objects: reads::OBJECTS,
    },
    Work { name: "watchers", title: "1,000 match-all watchers, 1 KiB events", objects: 0 },
    Work { name: "disjoint", title: "10k watchers on disjoint label selectors, 1 KiB events", objects: 0 },
    Work { name: "creates", title: "durable creates of 2 KiB", objects: 0 },
    Work { name: "latency", title: "500 durable writes/s of 1 KiB, one watcher", objects: 0 },
    Work { name: "memory", title: "100k × 2 KiB at rest, after a restart", objects: restart::OBJECTS },
    Work {
        name: "restart",
        title: "SIGKILL with 100k objects and 1,000 watchers",
        objects: restart::OBJECTS,
    },
];

const METHOD: &str = "## How it was measured

```sh
just bench-peers                   # everything; builds the reference unless SHARDCACHE_REFERENCE_BIN names it
just bench-peers list gzip         # some works; the page has the newest results of the same binaries on this machine
just bench-peers report            # only writes the page
SHARDCACHE_BENCH_SCALE=0.01 just bench-peers    # tries the harness: judges no times, writes nothing
```

- The reference ([tests/reference](../../tests/reference/README.md)) is kube's own apiserver for custom resources, watch cache on, over an embedded etcd that syncs every write; its figures include etcd's. Custom resources are encoded as JSON from unstructured objects there, which is what kube does for them; built-in types are cheaper in kube.
- Both run at their defaults, with their stores in one directory, over plain HTTP/1.1, a connection per client. The client is the same Rust program for both, and discards bodies.
- Both hold the same objects: APIExports with labels, managed fields, and names and hashes that compress as real ones do. shardcache is read through `shards/*/clusters/*`.
- In every round first one server works and then the other, alternating which is first. CPU is the server process's, all threads, from `/proc/PID/stat`; resident memory is `VmRSS`, its peak `VmHWM`.
- LISTs are made one after the other; each figure of a round is the mean of several (shardcache's are more).
- watch-list: each round begins with servers that were just started and have settled; growth is the peak above what was resident then.
- Watchers: events are created eight at once, the next eight when all watchers have theirs. The creates' cost is in the figure, also with disjoint selectors.
- Acknowledged → event: the writer's answer and the watcher's line are seen by the same program; the event may be there before the answer. Sent → event has both.
- Restart: each of 1,000 watchers selects its own hundred objects. After the kill it resumes from the newest version of its type; other types were written to since, as happens in every cluster. If the server says 410 it lists and watches anew, as client-go does. All are live when each has an event that was written afterwards.

## When nothing is reported

A run ends with an error and keeps nothing if the two servers' objects differ (names, labels, spec; also initial events, and gzip after decoding), if a client saw an error, an unexpected code or an event too many or too few (only the lists after a kill are repeated, and counted, when the server turns them away or gives up), or if it was too noisy: a round in which other programs took more than {foreign} of the machine's time is repeated (as many again at most), and the middle half of a figure's rounds may span {spread} of its median (of the reference's, where the goal is a share), unless each round of shardcache against each of the reference says the same of the goal.
";

//! What is measured here and stands on `docs/benchmarks/push.md` beside the numbers.

use crate::harness::report::{Page, Work};
use crate::harness::seed::SEEDERS;
use crate::{bare, initial};

pub(crate) const PAGE: Page = Page {
    name: "push",
    title: "The push protocol and the replicator",
    command: "just bench-push",
    works: &WORKS,
    columns: ["measured", "against"],
    legend: "What stands after the semicolon is what the figure is held against.
Of a rate the ratio is the figure through what it is held against, of a time or size the other way round; where the goal begins with ≤ it is the part of it, or the bound itself.",
    connections: || SEEDERS,
    versions: || vec![format!("bare redb: {}, the version that shardcache is built with", bare::version())],
    method: METHOD,
};

/// Works of as many objects stand together: they share the source.
const WORKS: [Work; 4] = [
    Work { name: "push", title: "first push of 100k × 2 KiB, durable", objects: 0 },
    Work {
        name: "reconnect",
        title: "reconnect of an up-to-date shard of 100k objects",
        objects: initial::OBJECTS,
    },
    Work { name: "replicator", title: "a replicator of 100k × 2 KiB", objects: initial::OBJECTS },
    Work { name: "steady", title: "single events of 1 KiB", objects: 0 },
];

const METHOD: &str = "## How it was measured

```sh
just bench-push                    # everything; builds the reference unless SHARDCACHE_REFERENCE_BIN names it
just bench-push push steady        # some works; the page has the newest results of the same binaries on this machine
just bench-push report             # only writes the page
SHARDCACHE_BENCH_SCALE=0.01 just bench-push     # tries the harness: judges no times, writes nothing
```

- The source is the reference apiserver ([tests/reference](../../tests/reference/README.md)); cache and replicator are `shardcache serve` and `shardcache replicate` at their defaults. All stores are in one directory, everything is plain HTTP, and servers and clients share the machine.
- Objects are those of [peers.md](peers.md): APIExports of about 2 KiB with labels and managed fields.
- **First push**: a pusher that has every frame ready in memory sends one complete sync over one HTTP/2 connection into an empty store, as far ahead as the window allows. Time is from the sync's start to the ack of its end, which is durable and visible to lists.
- **Bare redb** commits the rows of the store that the first of these pushes left, read back from its file: of each object its record (key, labels, body) by revision, in each commit the cell's row, and the row that notes the time where there is one. It does so in the commits of the newest push (acks of one commit tell the same version of the cache, and the server counts commits), from memory, through a cursor at the table's end as the server's writer does, durable with quick-repair and the same page cache and allocator, in a new file, and does nothing else. In every round first one works and then the other, alternating which is first.
- **REST writers**: the same objects are created at the source, 64 connections at once; the 100k are timed in five parts. What the cache has from the last push is then compared with what the source has.
- **Reconnect**: between replicator and cache is a TCP proxy that counts the bytes sent to the cache (all of the connection, HTTP/2's own too) and notes when the cache's frames pass. Confirmed is the ack of the first progress after the welcome: count and digest of both sides are the same then. A round that is synced again instead is refused, and after each break an object that is created at the source must arrive.
- A replicator that was killed has lost what it had sent. The push connection is up with the welcome; before its first progress it reads names and versions of all objects from the source, to prove them the cache's. It runs with `--leader-election` and a fixed `--identity`, as in a StatefulSet; without, the cache waits for 15 s of silence before it lets another process push (D32).
- **Memory** is of the replicator's process, `VmHWM` in the first sync and `VmRSS` once it has settled after it, without the `VmRSS` of one that replicates a type without objects. Its rate is bounded by the source, which encodes each object anew.
- **Single events**: the next object is created when the event of the one before has arrived at both watchers. Everything counts from the moment the create is sent. An fsync is a page of 4 KiB written to a file that does not grow and `fdatasync`, beside the stores, after each event. The goal can be read as 1.5 fsyncs and then the source's latency, or as 1.5 times the sum; both stand there.

## When nothing is reported

A run ends with an error and keeps nothing if the cache's objects are not the source's (names, labels, spec), if a client saw an error, an unexpected frame or an event too many, or if it was too noisy: a round in which other programs took more than {foreign} of the machine's time is repeated (as many again at most; of the five parts of the creates two may be left out), and the middle half of a figure's rounds may span {spread} of its median (of what it is held against, where the goal is a share), unless each round against each says the same of the goal.
";

// Runs one informer of @kubernetes/client-node against a cache and answers its driver,
// ../python/scenario.py, about what it holds and what its handlers saw.
import { createInterface } from 'node:readline';
import { CustomObjectsApi, KubeConfig, makeInformer } from '@kubernetes/client-node';

const [group, version, plural] = ['apis.kcp.io', 'v1alpha2', 'apiexports'];
/** The library leaves it to its user to start again after an error; nobody has to wait long for it. */
const RESTART_MS = 200;

const server = process.argv[process.argv.indexOf('--server') + 1];
const config = new KubeConfig();
// It refuses plain HTTP otherwise.
config.loadFromClusterAndUser({ name: 'cache', server, skipTLSVerify: true }, { name: 'me' });
const api = config.makeApiClient(CustomObjectsApi);

let synced = false;
const list = async () => {
  const listed = await api.listClusterCustomObject({ group, version, plural });
  synced = true;
  return listed;
};
const informer = makeInformer(config, `/apis/${group}/${version}/${plural}`, list);
let seen = [];
const note = (kind) => ({ metadata }) => seen.push([kind, metadata.name, metadata.resourceVersion]);
informer.on('add', note('ADDED'));
informer.on('update', note('MODIFIED'));
informer.on('delete', note('DELETED'));
informer.on('error', () => setTimeout(() => informer.start(), RESTART_MS));
informer.start();

for await (const question of createInterface({ input: process.stdin })) {
  if (question === 'quit') process.exit(0);
  if (question === 'events') {
    console.log(JSON.stringify({ streams: [seen] }));
    seen = [];
    continue;
  }
  if (question !== 'dump') throw new Error(`unknown question ${question}`);
  const items = {};
  for (const { metadata } of informer.list()) {
    const place = metadata.annotations ?? {};
    const key = [place['kcp.io/shard'], place['kcp.io/cluster'], metadata.namespace ?? '', metadata.name].join('|');
    items[key] = metadata.resourceVersion;
  }
  console.log(JSON.stringify({ synced, items }));
}

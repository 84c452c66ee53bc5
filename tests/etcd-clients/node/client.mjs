// etcd3 of npm against an endpoint. Usage: node client.mjs HOST:PORT
import { createRequire } from 'node:module';
import { strict as assert } from 'node:assert';
import { once } from 'node:events';

const require = createRequire(`${process.cwd()}/`);
const { Etcd3, EtcdLockFailedError } = require('etcd3');
const client = new Etcd3({ hosts: `http://${process.argv[2]}` });
const PATIENCE = 60_000;

async function keys() {
  await client.put('js/a').value('1');
  await client.put('js/a').value('2');
  assert.equal(await client.get('js/a').string(), '2');
  const { kvs } = await client.get('js/a').exec();
  assert.equal(kvs[0].version, '2');
  await client.put('js/b').value(Buffer.from([0, 255]));
  assert.deepEqual(await client.getAll().prefix('js/').sort('Key', 'Descend').keys(), ['js/b', 'js/a']);
  assert.equal(await client.getAll().prefix('js/').count(), 2);
  const old = await client.get('js/a').revision(Number(kvs[0].mod_revision) - 1).string();
  assert.equal(old, '1');
  const { deleted } = await client.delete().prefix('js/');
  assert.equal(Number(deleted), 2);
  assert.equal(await client.get('js/a'), null);
}

async function transactions() {
  const run = () => client.if('js/txn', 'Create', '==', 0)
    .then(client.put('js/txn').value('x'), client.get('js/txn'))
    .else(client.delete().key('js/txn')).commit();
  assert.equal((await run()).succeeded, true);
  assert.equal((await run()).succeeded, false);
  await client.stm().transact(async (tx) => {
    await tx.put('js/stm').value(`${(await tx.get('js/stm')) ?? ''}+`);
  });
}

async function watches() {
  const watcher = await client.watch().prefix('js/watch').create();
  const put = once(watcher, 'put'), deleted = once(watcher, 'delete');
  await client.put('js/watch/1').value('x');
  await client.delete().key('js/watch/1');
  const [event] = await put;
  assert.equal(event.value.toString(), 'x');
  await deleted;
  await watcher.cancel();
}

async function leases() {
  const lease = client.lease(600);
  await lease.put('js/leased').value('x');
  await lease.keepaliveOnce();
  await lease.revoke();
  assert.equal(await client.get('js/leased'), null);
  const short = client.lease(1, { autoKeepAlive: false });
  const watcher = await client.watch().key('js/expires').create();
  const deleted = once(watcher, 'delete');
  await short.put('js/expires').value('x');
  await deleted;
  await watcher.cancel();
}

async function locks() {
  const held = client.lock('js/lock').ttl(60);
  await held.acquire();
  await assert.rejects(client.lock('js/lock').acquire(), EtcdLockFailedError);
  await held.release();
  await client.lock('js/lock').do(async () => {});
}

async function elections() {
  const election = client.election('js/election', 60);
  const campaign = election.campaign('one');
  await once(campaign, 'elected');
  assert.equal(await election.leader(), 'one');
  const observer = await election.observe();
  if (observer.leader() === undefined) await once(observer, 'change');
  assert.equal(observer.leader(), 'one');
  await observer.cancel();
  await campaign.resign();
}

async function maintenance() {
  const status = await client.maintenance.status();
  assert.equal(status.leader, status.header.member_id);
  assert.equal((await client.cluster.memberList({})).members.length, 1);
}

let failed = false;
for (const check of [keys, transactions, watches, leases, locks, elections, maintenance]) {
  let timer;
  const late = new Promise((_, refuse) => { timer = setTimeout(() => refuse(new Error('no answer')), PATIENCE); });
  try {
    await Promise.race([check(), late]);
    console.log(`ok: node etcd3: ${check.name}`);
  } catch (error) {
    failed = true;
    console.log(`failed: node etcd3: ${check.name}: ${error.message}`);
  }
  clearTimeout(timer);
}
process.exit(failed ? 1 : 0);

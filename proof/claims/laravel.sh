#!/usr/bin/env bash
# What docs/coming-from.md says about Laravel's cache locks.
#
# Package: php-illuminate-cache 13.31.0, php-redis 6.2.0 and PHP 8.4 of Debian sid, Debian's redis-server 7.0.15
# Date:    2026-11-29
. "$(dirname "$0")/../../findings/lib.bash"
server redis 7.0.15
port=$(port)
start "$port"
recorded "$(laravel "$port" <<'END'
<?php
echo 'try: of a free lock: ', say($store->lock('job', 10)->get(fn() => 'worked')), ', then it is free: ', say($store->lock('job', 10)->get()), "\n";
echo 'try: of a held lock: ', say($store->lock('job', 10)->get(fn() => 'worked')), "\n";
echo 'try: it ends by its time: ', say($redis->connection()->ttl('cache:job') <= 10), "\n";
$store->lock('job')->forceRelease();
echo 'force: then it is free: ', say($store->lock('job', 1)->get()), "\n";
echo 'wait: for a lock that ends in a second: ', say($store->lock('job', 10)->block(5, fn() => 'worked')), "\n";
$mine = $store->lock('job', 10);
$mine->get();
try {
	$store->lock('job', 10)->block(1, fn() => 'worked');
} catch (Illuminate\Contracts\Cache\LockTimeoutException $e) {
	echo 'wait: in vain: ', get_class($e), "\n";
}
echo 'owner: another owner releases: ', say($store->restoreLock('job', 'other')->release()), ', the owner: ', say($store->restoreLock('job', $mine->owner())->release()), "\n";
$lost = $store->lock('short', 1);
$lost->get();
usleep(1200000);
echo 'loss: held: ', say($lost->isOwnedByCurrentProcess()), ', release: ', say($lost->release()), ', refresh: ', say($lost->refresh()), "\n";
$funnel = fn($work) => $repository->funnel('pool')->limit(3)->block(0)->then($work, fn() => 'refused');
echo 'funnel: three run, a fourth is ', $funnel(fn() => $funnel(fn() => $funnel(fn() => $funnel(fn() => 'run')))), "\n";
END
)" <<'END'
try: of a free lock: worked, then it is free: true
try: of a held lock: false
try: it ends by its time: true
force: then it is free: true
wait: for a lock that ends in a second: worked
wait: in vain: Illuminate\Contracts\Cache\LockTimeoutException
owner: another owner releases: false, the owner: true
loss: held: false, release: false, refresh: false
funnel: three run, a fourth is refused
END

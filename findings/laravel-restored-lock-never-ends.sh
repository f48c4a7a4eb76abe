#!/usr/bin/env bash
# Laravel: a queued job that restores a lock by its owner, and refreshes it, removes the lock's TTL.
#
# Expected: restoreLock(name, owner)->refresh() gives the lock its whole time again, as refresh() of the original does.
# Seen:     a restored lock has 0 as its number of seconds. So refresh() removes the TTL of the key, and returns true. If the job
#           then dies, the lock stays held. refresh(10) sets the TTL.
# Package:  php-illuminate-cache 13.31.0, php-redis 6.2.0 and PHP 8.4 of Debian sid, Debian's redis-server 7.0.15
# Date:     2026-11-29
. "$(dirname "$0")/lib.bash"
server redis 7.0.15
port=$(port)
start "$port"
recorded "$(laravel "$port" <<'END'
<?php
function ttl(): string {
	global $redis;
	$ms = $redis->connection()->pttl('cache:job');
	return $ms < 0 ? 'none' : round($ms / 1000);
}
$lock = $store->lock('job', 60);
echo 'get: ', say($lock->get()), ', TTL in s: ', ttl(), "\n";
sleep(2);
echo 'refresh: ', say($lock->refresh()), ', TTL in s: ', ttl(), "\n";
$restored = $store->restoreLock('job', $lock->owner());
echo 'refresh of the restored lock: ', say($restored->refresh()), ', TTL in s: ', ttl(), "\n";
echo 'with its seconds: ', say($restored->refresh(60)), ', TTL in s: ', ttl(), "\n";
END
)" <<'END'
get: true, TTL in s: 60
refresh: true, TTL in s: 60
refresh of the restored lock: true, TTL in s: none
with its seconds: true, TTL in s: 60
END

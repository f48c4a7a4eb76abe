#!/usr/bin/env bash
# Symfony: a process that dies while it takes a lock for 5 s leaves it locked for 5 minutes.
#
# Expected: createLock('job', 5)->acquire() takes the lock for 5 s at most, with one request.
# Seen:     the store takes it for its own initial TTL, 300 s by default, and a second request shortens that to the lock's 5 s. If the
#           process dies, or the connection breaks, between the two, the lock stays for 300 s. A shorter initial TTL shortens that.
# Package:  php-symfony-lock 7.4.22, php-redis 6.2.0 and PHP 8.4 of Debian sid, Debian's redis-server 7.0.15
# Date:     2026-11-29
. "$(dirname "$0")/lib.bash"
server redis 7.0.15
php_with 7.4.22 php-symfony-lock
port=$(port)
start "$port"
cat >"$work/acquire.php" <<'END'
<?php
require_once 'Symfony/Component/Lock/autoload.php';
use Symfony\Component\Lock\{Key, LockFactory, Store\RedisStore};
class Dies extends RedisStore { // at the second request
	public function putOffExpiration(Key $key, float $ttl): void { posix_kill(getmypid(), SIGKILL); }
}
$redis = new Redis();
$redis->connect('127.0.0.1', (int) $argv[1]);
$store = match ($argv[2]) {
	'lives' => new RedisStore($redis),
	'dies' => new Dies($redis),
	'dies-10' => new Dies($redis, 10),
};
(new LockFactory($store))->createLock($argv[2], 5, false)->acquire();
END
seen=
for name in lives dies dies-10; do
	"${php[@]}" "$work/acquire.php" "$port" "$name" >/dev/null 2>&1 || true
	seen+="$name: TTL in s: $(on "$port" TTL "$name")"$'\n'
done
recorded "$(sed -E 's/: (4|5)$/: 5/; s/: (9|10)$/: 10/; s/: (29[0-9]|300)$/: 300/' <<<"${seen%$'\n'}")" <<'END'
lives: TTL in s: 5
dies: TTL in s: 300
dies-10: TTL in s: 10
END

#!/usr/bin/env bash
# Symfony: a user with all permissions on a lock's key cannot acquire it: the store writes a key of its own.
#
# Expected: the store's scripts use the key of the lock, and no other.
# Seen:     before its first lock, each process tests whether scripts may write after TIME. It sets the key
#           symfony_check_support_time, without any prefix. If the user is limited to other keys, this fails, and so does each lock.
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
$redis = new Redis();
$redis->connect('127.0.0.1', (int) $argv[1]);
$redis->auth(['app', 'password']);
try {
	echo json_encode((new Symfony\Component\Lock\LockFactory(new Symfony\Component\Lock\Store\RedisStore($redis)))->createLock('app:job', 5)->acquire());
} catch (Throwable $e) {
	echo $e->getMessage(), ' ', strtok($e->getPrevious()->getMessage(), ' ');
}
END
on "$port" ACL SETUSER app on '>password' '~app:*' +@all >/dev/null
seen="with app:*: $("${php[@]}" "$work/acquire.php" "$port")"$'\n'
on "$port" ACL SETUSER app '~symfony_check_support_time' >/dev/null
seen+="with symfony_check_support_time, too: $("${php[@]}" "$work/acquire.php" "$port")"
recorded "$seen" <<'END'
with app:*: Failed to acquire the "app:job" lock. NOPERM
with symfony_check_support_time, too: true
END

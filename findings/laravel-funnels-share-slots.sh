#!/usr/bin/env bash
# Laravel: funnels of different names share slots, if one name is the other followed by digits.
#
# Expected: funnel('tenant-1') and funnel('tenant-11') limit two different tenants, each to twelve jobs at once.
# Seen:     a slot's key is the name followed by the slot's number, without a separator. So slots 11 and 12 of tenant-1 have the same
#           keys as slots 1 and 2 of tenant-11. While tenant-1 runs twelve jobs, tenant-11 may run only ten. A plain lock shares
#           the keys, too: lock('tenant-112') is slot 12 of tenant-1 and slot 2 of tenant-11.
# Package:  php-illuminate-cache 13.31.0, php-redis 6.2.0 and PHP 8.4 of Debian sid, Debian's redis-server 7.0.15
# Date:     2026-11-29
. "$(dirname "$0")/lib.bash"
server redis 7.0.15
port=$(port)
start "$port"
recorded "$(laravel "$port" <<'END'
<?php
function fill(string $name): string { // starts jobs until the funnel refuses
	global $repository;
	$count = -1;
	do {
		$count++;
		try {
			$more = (new Illuminate\Cache\Limiters\ConcurrencyLimiter($repository->getStore(), $name, 12, 60))->block(0);
		} catch (Illuminate\Cache\Limiters\LimiterTimeoutException) {
			$more = false;
		}
	} while ($more);
	return "$count jobs of $name";
}
echo fill('tenant-1'), ', then ', fill('tenant-2'), ', then ', fill('tenant-11'), "\n";
echo "lock('tenant-112') is free: ", say($store->lock('tenant-112', 60)->get()), "\n";
END
)" <<'END'
12 jobs of tenant-1, then 12 jobs of tenant-2, then 10 jobs of tenant-11
lock('tenant-112') is free: false
END

// Package redisson behaves on the wire like the locks of Redisson, the Java client: the same keys,
// fields, scripts, subscriptions, retries and waits. Tests use it as the Java half of a mixed
// fleet.
//
// A [Client] is one JVM. Its threads that wait for one lock share a subscription and a semaphore: a
// message lets one of them try. A [Lock] is the lock as one thread uses it.
//
// The model covers these classes, as of 2026: RedissonLock, RedissonFairLock, RedissonSpinLock,
// RedissonReadLock, RedissonWriteLock, RedissonFencedLock, RedissonMultiLock and RedissonRedLock.
// Of semaphores, countdown latches and locks of a group, it has only the calls that return at once.
// It omits retries after a timeout, and sentinels.
package redisson

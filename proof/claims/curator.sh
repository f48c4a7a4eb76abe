#!/usr/bin/env bash
# What docs/coming-from.md and docs/election.md say about Curator's recipes.
#
# Package: Debian's libcurator-recipes-java 5.4.0 and zookeeper 3.8.0, with the compiler of openjdk-17-jdk-headless
# Date:    2026-11-29
. "$(dirname "$0")/../../findings/lib.bash"
need javac default-jdk-headless
package libcurator-recipes-java 5.4.0
port=$(port)
zookeeper "$port"
cat >"$work/Claims.java" <<'END'
import java.util.*;
import java.util.concurrent.*;
import org.apache.curator.framework.*;
import org.apache.curator.framework.recipes.barriers.*;
import org.apache.curator.framework.recipes.leader.*;
import org.apache.curator.framework.recipes.locks.*;
import org.apache.curator.framework.recipes.shared.*;
import org.apache.curator.framework.state.*;
import org.apache.curator.retry.*;

public class Claims {
	static CuratorFramework open(String address) {
		var client = CuratorFrameworkFactory.builder().connectString(address).sessionTimeoutMs(4000).connectionTimeoutMs(2000).retryPolicy(new RetryOneTime(100)).build();
		client.start();
		return client;
	}

	static void say(String text) { System.out.println(text); }

	public static void main(String[] args) throws Exception {
		var one = open(args[0]);
		var other = open(args[0]);

		var mutex = new InterProcessMutex(one, "/mutex");
		mutex.acquire();
		say("mutex: the same thread enters again: " + mutex.acquire(1, TimeUnit.SECONDS));
		var thread = Executors.newSingleThreadExecutor();
		say("mutex: another thread enters: " + thread.submit(() -> mutex.acquire(1, TimeUnit.SECONDS)).get());
		say("acquire: another process, after the given time: " + new InterProcessMutex(other, "/mutex").acquire(1, TimeUnit.SECONDS));
		mutex.release();
		mutex.release();

		var semaphoreMutex = new InterProcessSemaphoreMutex(one, "/semaphore-mutex");
		semaphoreMutex.acquire();
		say("semaphore mutex: the same thread enters again: " + semaphoreMutex.acquire(1, TimeUnit.SECONDS));

		var rw = new InterProcessReadWriteLock(one, "/rw");
		rw.writeLock().acquire();
		say("read-write: a writer reads: " + rw.readLock().acquire(1, TimeUnit.SECONDS));
		rw.writeLock().release();
		say("read-write: it is a reader then, and others read: " + new InterProcessReadWriteLock(other, "/rw").readLock().acquire(1, TimeUnit.SECONDS));
		var reader = new InterProcessReadWriteLock(one, "/upgrade");
		reader.readLock().acquire();
		say("read-write: a reader alone writes after two seconds: " + reader.writeLock().acquire(2, TimeUnit.SECONDS));

		var multi = new InterProcessMultiLock(one, List.of("/a", "/b"));
		multi.acquire();
		say("multi: a member for others: " + new InterProcessMutex(other, "/b").acquire(1, TimeUnit.SECONDS));

		var count = new SharedCount(one, "/count", 1);
		count.start();
		var semaphore = new InterProcessSemaphoreV2(one, "/semaphore", count);
		semaphore.acquire();
		say("semaphore: beyond the count: " + semaphore.acquire(1, TimeUnit.SECONDS));
		count.setCount(2);
		say("semaphore: after a higher count: " + (semaphore.acquire(5, TimeUnit.SECONDS) != null));

		var revoked = new CountDownLatch(1);
		var revocable = new InterProcessMutex(one, "/revocable");
		revocable.makeRevocable(lock -> revoked.countDown());
		revocable.acquire();
		for (var node : revocable.getParticipantNodes()) Revoker.attemptRevoke(other, node);
		say("revoke: the holder is asked: " + revoked.await(5, TimeUnit.SECONDS) + ", and still holds: " + revocable.isAcquiredInThisProcess());

		var barrier = new DistributedBarrier(one, "/barrier");
		barrier.setBarrier();
		say("barrier: set: " + new DistributedBarrier(other, "/barrier").waitOnBarrier(1, TimeUnit.SECONDS));
		barrier.removeBarrier();
		say("barrier: removed: " + new DistributedBarrier(other, "/barrier").waitOnBarrier(1, TimeUnit.SECONDS));

		say("nodes: " + org.apache.curator.framework.recipes.nodes.PersistentNode.class.getSimpleName() + " " + org.apache.curator.framework.recipes.cache.PathChildrenCache.class.getSimpleName());

		var terms = new LinkedBlockingQueue<String>();
		var selector = new LeaderSelector(one, "/selector", new LeaderSelectorListenerAdapter() {
			public void takeLeadership(CuratorFramework client) throws Exception {
				terms.add("leads");
				try {
					new CountDownLatch(1).await();
				} catch (InterruptedException e) {
					terms.add("interrupted");
				}
			}
		});
		selector.autoRequeue();
		selector.start();
		say("selector: " + terms.take());
		selector.interruptLeadership();
		say("selector: interruptLeadership: " + terms.take() + ", and with autoRequeue, it " + terms.take());

		var latch = new LeaderLatch(one, "/latch", "one");
		var left = new CountDownLatch(1);
		latch.addListener(new LeaderLatchListener() {
			public void isLeader() {}
			public void notLeader() { left.countDown(); }
		});
		latch.start();
		latch.await();
		var candidate = new LeaderLatch(other, "/latch", "other");
		candidate.start();
		while (latch.getParticipants().size() < 2) Thread.sleep(10);
		say("latch: hasLeadership: " + latch.hasLeadership() + ", getLeader: " + candidate.getLeader().getId() + ", getParticipants: " + latch.getParticipants().size());
		latch.close(LeaderLatch.CloseMode.NOTIFY_LEADER);
		candidate.await();
		say("latch: close(NOTIFY_LEADER) tells the leader: " + left.await(5, TimeUnit.SECONDS) + ", and another leads: " + candidate.hasLeadership());

		var states = new LinkedBlockingQueue<ConnectionState>();
		one.getConnectionStateListenable().addListener((client, state) -> states.add(state));
		ProcessHandle.of(Long.parseLong(args[1])).get().destroyForcibly();
		say("connection: " + states.take() + ", and by default, the selector's thread is " + terms.take());
		say("connection: then " + states.take());
		System.exit(0);
	}
}
END
javac -cp '/usr/share/java/*' -d "$work" "$work/Claims.java" >"$work/javac" 2>&1 || { tail -n 5 "$work/javac" >&2; lacks "the program does not compile"; }
recorded "$(timeout 120 java -Xmx128m -cp "$work:/usr/share/java/*" Claims "127.0.0.1:$port" "$pid" 2>"$work/java")" <<'END'
mutex: the same thread enters again: true
mutex: another thread enters: false
acquire: another process, after the given time: false
semaphore mutex: the same thread enters again: false
read-write: a writer reads: true
read-write: it is a reader then, and others read: true
read-write: a reader alone writes after two seconds: false
multi: a member for others: false
semaphore: beyond the count: null
semaphore: after a higher count: true
revoke: the holder is asked: true, and still holds: true
barrier: set: false
barrier: removed: true
nodes: PersistentNode PathChildrenCache
selector: leads
selector: interruptLeadership: interrupted, and with autoRequeue, it leads
latch: hasLeadership: true, getLeader: one, getParticipants: 2
latch: close(NOTIFY_LEADER) tells the leader: true, and another leads: true
connection: SUSPENDED, and by default, the selector's thread is interrupted
connection: then LOST
END

package scriptmodel

import "time"

// The scripts of Redisson's RLock, as in package redisson, with an owner that enters once. Each
// runs at the time now. They fail at a key of another kind.

// Lock is tryLock. left is how long the key lasts if another owner has it.
func (n *Node) Lock(now Time, name, owner string, ttl time.Duration) (granted bool, left time.Duration, err error) {
	defer failed(&err)
	n.now = now
	k := n.key(name)
	if k.exists() && !k.hexists(owner) {
		return false, time.Duration(n.pttl(k)) * time.Millisecond, nil
	}
	k.hset(owner, "1")
	n.pexpire(k, ttl.Milliseconds())
	return true, 0, nil
}

// Extend is the watchdog's renewal.
func (n *Node) Extend(now Time, name, owner string, ttl time.Duration) (held bool, err error) {
	defer failed(&err)
	n.now = now
	k := n.key(name)
	if held = k.hexists(owner); held {
		n.pexpire(k, ttl.Milliseconds())
	}
	return held, nil
}

// Unlock is unlock without the message.
func (n *Node) Unlock(now Time, name, owner string) (held bool, err error) {
	defer failed(&err)
	n.now = now
	k := n.key(name)
	if held = k.hexists(owner); held {
		k.del()
	}
	return held, nil
}

func failed(err *error) {
	if r := recover(); r != nil {
		f, ok := r.(failure)
		if !ok {
			panic(r)
		}
		*err = f
	}
}

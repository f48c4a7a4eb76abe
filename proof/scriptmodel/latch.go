package scriptmodel

import (
	"crypto/sha1"
	"encoding/binary"
	"math"
	"regexp"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// ownerLike matches the fields of a hash that may be the owners of a lock.
var ownerLike = regexp.MustCompile(`^[^ \t-\r]+:[0-9][0-9/.]*$`)

// latchForm matches the stored state of a latch.
var latchForm = regexp.MustCompile(`(?s)^([0-9]+) ([^ \t-\r]+)(.*)$`)

// digests is the modulus of the digest of a latch.
const digests = 1 << 52

// hashOf is hash in latch.lua.
func hashOf(id string) float64 {
	sum := sha1.Sum([]byte(id))
	return float64(binary.BigEndian.Uint64(sum[:]) >> 12)
}

// modulo is v % digests in Lua, which is never negative.
func modulo(v float64) float64 { return v - math.Floor(v/digests)*digests }

// latch is latch.lua.
func (n *Node) latch(ids *key) wire.Reply {
	needed, what, added := n.text(1), n.text(2), n.args[7:]
	if n.lock.exists() && n.lock.kind != hash {
		panic(failure("WRONGKIND " + n.noLatch()))
	}
	stored, there := n.lock.hget(latchMark)
	if !there {
		if field := n.notOfLatch(); field != "" {
			panic(failure("WRONGKIND field " + field))
		} else if what == "make" && n.token.exists() {
			panic(failure("WRONGKIND token"))
		}
	}
	server, open := "", ""
	if there {
		m := latchForm.FindStringSubmatch(stored)
		if m == nil || m[1] != needed {
			panic(failure("LATCH " + stored))
		}
		server, open = m[2], m[3]
	}
	if ids.exists() && ids.kind != zset {
		panic(failure("WRONGKIND ids"))
	}
	count, digest := len(ids.ranked()), 0.0
	if score, ok := ids.zscore(""); ok {
		count, digest = count-1, -1-score
	}

	if what != "read" && (there || what != "keep") {
		before := stored
		if !there {
			server = n.text(4)
		}
		if open == "" {
			had := count
			for _, id := range added {
				if ids.zrank(id) < 0 {
					ids.zadd(whole(float64(count+1)), id)
					count, digest = count+1, modulo(digest+hashOf(id))
				}
			}
			if count > had {
				ids.zadd(whole(-1-digest), "")
			}
			n.expire(ids, n.text(3))
			if what == "open" || float64(count) >= n.number(1) {
				open = " open"
			}
		}
		stored = needed + " " + server + open
		if stored != before {
			n.lock.hset(latchMark, stored)
			n.lock.hset("mode", "latch")
			if open != "" {
				ids.del()
				n.publish(n.text(5), "open")
			}
		}
		there = true
		n.lengthen(n.lock, n.number(3))
		n.pexpire(ids, n.pttl(n.lock))
	}
	if there && open != "" {
		return wire.Reply{Value: []any{int64(2), server, int64(0), int64(0), []any{}}}
	}
	last, limit := []any{}, int(n.number(7))
	if n.text(6) != "0" {
		for _, m := range ids.from(max(count-int(n.number(6)), 0) + 1) {
			last = append(last, m.Name)
		}
	}
	if limit >= 0 {
		for _, m := range ids.from(limit + 1) {
			count, digest = count-1, modulo(digest-hashOf(m.Name))
		}
		for _, id := range added {
			if must(ids.zscore(id)) <= float64(limit) {
				count, digest = count-1, modulo(digest-hashOf(id))
			}
		}
	}
	return wire.Reply{Value: []any{integerOf(there), server, int64(count), int64(digest), last}}
}

// noLatch returns the kind of a name's key that is no hash, as the error WRONGKIND names it.
func (n *Node) noLatch() string {
	switch {
	case n.lock.kind == text:
		return "string"
	case n.lock.kind == zset && n.lock.zrank(semaphoreMark) >= 0:
		return "semaphore"
	}
	return "type"
}

// notOfLatch returns the most telling field of a hash that is no latch, "" without fields.
func (n *Node) notOfLatch() (field string) {
	for _, f := range n.lock.hgetall() {
		own := f.Name == "mode" && (f.Value == "mutex" || f.Value == "shared")
		if !own && field != "mode" && (field == "" || !ownerLike.MatchString(f.Name)) {
			field = f.Name
		}
	}
	return field
}

// from returns the members from a place on.
func (k *key) from(place int) []Member {
	all := k.ranked()
	return all[min(place, len(all)):]
}

package quorum

import "github.com/quorumlock/quorumlock/internal/wire"

// union is what several cells have of a latch together.
type union struct {
	there bool
	open  bool
	ids   map[string]struct{} // without those of cells where it is open
}

func (u *union) add(s wire.LatchState) {
	u.there, u.open = u.there || s.There, u.open || s.Open
	for _, id := range s.IDs {
		u.ids[id] = struct{}{}
	}
}

// within reports whether a cell has all of it.
func (u *union) within(s wire.LatchState) bool {
	if s.Open || u.open {
		return s.Open
	}
	n := 0
	for _, id := range s.IDs {
		if _, ok := u.ids[id]; ok {
			n++
		}
	}
	return n == len(u.ids)
}

// size is how many ids it has, at most n.
func (u *union) size(n int) int {
	if u.open {
		return n
	}
	return min(len(u.ids), n)
}

package quorum

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
)

func isDecided(b *ballot) bool {
	select {
	case <-b.decided:
		return true
	default:
		return false
	}
}

func TestBallotIsDecidedByTheFirstVoteThatSettlesIt(t *testing.T) {
	for _, s := range shapes() {
		t.Run(s.String(), func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 2))
			for range 200 {
				b := newBallot(s.tree(), s.size())
				votes := make([]Vote, s.size())
				want := Pending
				for _, cell := range random.Perm(s.size()) {
					votes[cell] = []Vote{Yes, No}[random.IntN(2)]
					decides := want == Pending && dumbTally(s, votes) != Pending
					if decides {
						want = dumbTally(s, votes)
					}
					if got := b.cast(cell, votes[cell]); got != decides {
						t.Fatalf("cast reports %v for the vote of %d in %v", got, cell, votes)
					}
					if b.result() != want || isDecided(b) != (want != Pending) {
						t.Fatalf("after %v: result %v, decided %v, want %v", votes, b.result(), isDecided(b), want)
					}
				}
			}
		})
	}
}

func TestAVoteAfterTheDecisionCountsButChangesNothing(t *testing.T) {
	b := newBallot(Majority(2, 3), 3)
	if b.cast(0, Yes) || !b.cast(1, Yes) {
		t.Fatal("the second of two votes needed is not the one that decides")
	}
	if b.won() != 2 {
		t.Errorf("won %d members, want 2", b.won())
	}
	if b.cast(2, Yes) {
		t.Error("a third vote decides once more")
	}
	if b.won() != 3 || b.result() != Won {
		t.Errorf("won %d members, result %v", b.won(), b.result())
	}
}

// A vote that is lost and one that came late may both be cast for a cell: the result stands.
func TestADecisionIsNotTakenBack(t *testing.T) {
	b := newBallot(Majority(2, 3), 3)
	b.cast(0, No)
	if !b.cast(1, No) {
		t.Fatal("two refusals of three do not decide")
	}
	for cell := range 3 {
		b.cast(cell, Yes)
	}
	if b.result() != Lost {
		t.Errorf("the result is %v, want Lost still", b.result())
	}
}

func TestWonCountsMembersNotCells(t *testing.T) {
	for _, tt := range []struct {
		name  string
		tree  Tree
		votes []Vote
		want  int
	}{
		{"a node, unanswered", Tree{}, []Vote{Unanswered}, 0},
		{"a node, refused", Tree{}, []Vote{No}, 0},
		{"a node, granted", Tree{}, []Vote{Yes}, 1},
		{"a RedLock", Majority(3, 5), []Vote{Yes, No, Yes, Unanswered, No}, 2},
		{"a MultiLock, one whole member", Every([]Tree{Majority(2, 3), Majority(2, 3)}), []Vote{Yes, No, Yes, No, No, Yes}, 1},
		{"a MultiLock, none whole", Every([]Tree{Majority(2, 3), Majority(2, 3)}), []Vote{Yes, No, No, No, No, Yes}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBallot(tt.tree, len(tt.votes))
			for cell, v := range tt.votes {
				if v != Unanswered {
					b.cast(cell, v)
				}
			}
			if got := b.won(); got != tt.want {
				t.Errorf("won %d members, want %d", got, tt.want)
			}
		})
	}
}

func TestExactlyOneOfManyVotesAtOnceDecides(t *testing.T) {
	for range 200 {
		const cells = 9
		b := newBallot(Majority(5, cells), cells)
		var deciders atomic.Int32
		var wg sync.WaitGroup
		for cell := range cells {
			wg.Go(func() {
				if b.cast(cell, Yes) {
					deciders.Add(1)
				}
			})
		}
		<-b.decided
		if b.result() != Won {
			t.Fatalf("decided, and the result is %v", b.result())
		}
		wg.Wait()
		if deciders.Load() != 1 || b.won() != cells {
			t.Fatalf("%d votes decided, %d counted", deciders.Load(), b.won())
		}
	}
}

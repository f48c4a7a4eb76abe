package quorumlock_test

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/settings"
	"github.com/quorumlock/quorumlock/internal/testkit"
)

const (
	longest  = time.Duration(math.MaxInt64)
	shortest = time.Duration(math.MinInt64)
)

func TestValidityIsTTLLessElapsedLessDrift(t *testing.T) {
	onePercent := quorumlock.DefaultDrift()
	none := quorumlock.Drift{}
	for _, tt := range []struct {
		name         string
		drift        quorumlock.Drift
		ttl, elapsed time.Duration
		want         time.Duration
	}{
		{"nothing elapsed", onePercent, 10 * time.Second, 0, 9898 * time.Millisecond},
		{"some elapsed", onePercent, 10 * time.Second, 398 * time.Millisecond, 9500 * time.Millisecond},
		{"just over", onePercent, 10 * time.Second, 9898 * time.Millisecond, 0},
		{"long over", onePercent, 10 * time.Second, time.Minute, -50*time.Second - 102*time.Millisecond},
		{"the shortest TTL", onePercent, quorumlock.MinTTL, 0, 7900 * time.Microsecond},
		{"no drift", none, time.Second, 300 * time.Millisecond, 700 * time.Millisecond},
		{"only a floor", quorumlock.Drift{Floor: time.Millisecond}, time.Second, 0, 999 * time.Millisecond},
		{"only a rate", quorumlock.Drift{Rate: 0.25}, time.Second, 0, 750 * time.Millisecond},
		{"part of a nanosecond is rounded up", quorumlock.Drift{Rate: 0.25}, 5, 0, 3},
		{"a clock that ran backwards gains nothing", onePercent, 10 * time.Second, -time.Hour, 9898 * time.Millisecond},
		{"no TTL", onePercent, 0, 0, -2 * time.Millisecond},
		{"a negative TTL", none, -time.Second, 0, -time.Second},
		{"an invalid drift", quorumlock.Drift{Rate: 1}, time.Second, 0, 0},
		{"an invalid drift and a negative TTL", quorumlock.Drift{Floor: -1}, -time.Second, 0, -time.Second},
		{"the longest TTL", none, longest, 0, longest},
		{"the longest of everything", quorumlock.Drift{Rate: math.Nextafter(1, 0), Floor: longest}, longest, longest, shortest},
		{"no overflow below", quorumlock.Drift{Floor: longest}, shortest, longest, shortest},
		{"no overflow of a negative elapsed", none, longest, shortest, longest},
	} {
		testkit.Equal(t, tt.drift.Validity(tt.ttl, tt.elapsed), tt.want, "%s: %+v.Validity(%v, %v)", tt.name, tt.drift, tt.ttl, tt.elapsed)
	}
}

func TestValidateRejectsWhatCannotWorkAndSaysWhatWould(t *testing.T) {
	for _, tt := range []struct {
		name  string
		drift quorumlock.Drift
		wrong string // the field at fault, or empty if there is none
	}{
		{"zero", quorumlock.Drift{}, ""},
		{"default", quorumlock.DefaultDrift(), ""},
		{"the highest rate", quorumlock.Drift{Rate: math.Nextafter(1, 0)}, ""},
		{"the longest floor", quorumlock.Drift{Floor: longest}, ""},
		{"negative zero", quorumlock.Drift{Rate: math.Copysign(0, -1)}, ""},
		{"rate 1", quorumlock.Drift{Rate: 1}, "Rate"},
		{"rate above 1", quorumlock.Drift{Rate: 1.5}, "Rate"},
		{"negative rate", quorumlock.Drift{Rate: -0.01}, "Rate"},
		{"the smallest negative rate", quorumlock.Drift{Rate: -math.SmallestNonzeroFloat64}, "Rate"},
		{"NaN", quorumlock.Drift{Rate: math.NaN()}, "Rate"},
		{"infinite", quorumlock.Drift{Rate: math.Inf(1)}, "Rate"},
		{"negative infinite", quorumlock.Drift{Rate: math.Inf(-1)}, "Rate"},
		{"negative floor", quorumlock.Drift{Floor: -1}, "Floor"},
		{"the lowest floor", quorumlock.Drift{Floor: shortest}, "Floor"},
	} {
		err := settings.CheckDrift(tt.drift.Rate, tt.drift.Floor)
		if tt.wrong == "" {
			testkit.OK(t, err, "%s", tt.name)
			continue
		}
		testkit.Is(t, err, quorumlock.ErrMisuse, "%s", tt.name)
		for _, want := range []string{"quorumlock: ", "Drift." + tt.wrong, "such as"} {
			if !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("%s: %q does not say %q", tt.name, err, want)
			}
		}
		if left := tt.drift.Validity(time.Hour, 0); left > 0 {
			t.Errorf("%s: it leaves a validity of %v all the same", tt.name, left)
		}
	}
}

// edges are the durations at which arithmetic may fail.
var edges = []int64{
	math.MinInt64, math.MinInt64 + 1, -1, 0, 1, 2, 5, int64(quorumlock.MinTTL), int64(quorumlock.DefaultTTL),
	1<<53 - 1, 1 << 53, 1<<53 + 1, math.MaxInt64 / 2, math.MaxInt64 - 1, math.MaxInt64,
}

var rates = []float64{
	0, math.SmallestNonzeroFloat64, 1e-9, 0.01, 1.0 / 3, 0.5, math.Nextafter(1, 0),
	1, -0.01, math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64,
}

func FuzzValidityIsPessimistic(f *testing.F) {
	for _, ttl := range edges {
		for i, elapsed := range edges {
			f.Add(ttl, elapsed, rates[i%len(rates)], edges[len(edges)-1-i], int64(i))
			f.Add(ttl, elapsed, 0.01, int64(2*time.Millisecond), int64(math.MaxInt64))
		}
	}
	f.Fuzz(func(t *testing.T, ttl, elapsed int64, rate float64, floor, more int64) {
		d := quorumlock.Drift{Rate: rate, Floor: time.Duration(floor)}
		got := d.Validity(time.Duration(ttl), time.Duration(elapsed))
		if got > time.Duration(ttl) {
			t.Errorf("the validity %d exceeds the TTL %d", got, ttl)
		}
		if later := elapsed + more; later > elapsed {
			if left := d.Validity(time.Duration(ttl), time.Duration(later)); left > got {
				t.Errorf("the validity grew from %d at %d elapsed to %d at %d", got, elapsed, left, later)
			}
		}
		if settings.CheckDrift(d.Rate, d.Floor) != nil {
			if got > 0 {
				t.Errorf("a validity of %d with an invalid drift", got)
			}
			return
		}
		checkAgainstExact(t, int64(got), ttl, max(elapsed, 0), rate, floor)
	})
}

// checkAgainstExact compares a validity with the formula in exact arithmetic. A float64 limits the
// precision of a Rate: two roundings, each of half a unit in the last place.
func checkAgainstExact(t *testing.T, got, ttl, elapsed int64, rate float64, floor int64) {
	t.Helper()
	const precision = 4096 // bits: enough for the product of any float64 and any int64
	exactly := func(n int64) *big.Float { return new(big.Float).SetPrec(precision).SetInt64(n) }
	share := exactly(max(ttl, 0))
	share.Mul(share, new(big.Float).SetPrec(precision).SetFloat64(rate))
	doubt := new(big.Float).SetPrec(precision).SetMantExp(share, -52)

	whole := exactly(ttl)
	whole.Sub(whole, exactly(elapsed))
	whole.Sub(whole, exactly(floor))
	most := new(big.Float).SetPrec(precision).Sub(whole, share)
	least := new(big.Float).SetPrec(precision).Sub(most, doubt)
	least.Sub(least, exactly(1)) // rounded up to a whole nanosecond
	most.Add(most, doubt)

	if bottom := exactly(math.MinInt64); most.Cmp(bottom) < 0 {
		most = bottom
	}
	if v := exactly(got); v.Cmp(most) > 0 || v.Cmp(least) < 0 {
		t.Errorf("Validity(ttl %d, elapsed %d, rate %v, floor %d) = %d, want %s to %s",
			ttl, elapsed, rate, floor, got, least.Text('f', 12), most.Text('f', 12))
	}
}

func FuzzValidateAcceptsExactlyRatesBelowOne(f *testing.F) {
	for i, rate := range rates {
		f.Add(rate, edges[i])
	}
	f.Fuzz(func(t *testing.T, rate float64, floor int64) {
		err := settings.CheckDrift(rate, time.Duration(floor))
		if want := rate >= 0 && rate < 1 && floor >= 0; (err == nil) != want {
			t.Errorf("Rate %v, Floor %d: %v", rate, floor, err)
		}
	})
}

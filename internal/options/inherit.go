package options

import (
	"fmt"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/settings"
)

// Inherit resolves the options of a MultiLock over the defaults of a client. It ignores the
// client's quorum, prefix and label, which belong to the members.
func Inherit(defaults, own []quorumlock.Option) (Settings, error) {
	members := quorumlock.Option(func(s *Settings) {
		s.Quorum, s.Prefix, s.Label = unset, "", settings.DefaultLabel()
	})
	return Resolve(slices.Concat(defaults, []quorumlock.Option{members}, own)...)
}

// Difference returns the name and both values of the first option in which holds of a and b differ;
// "" if none differs.
func Difference(a, b *Settings) string {
	for _, o := range []struct {
		name string
		a, b any
	}{
		{"WithTTL", a.TTL, b.TTL},
		{"WithoutRenewal", !a.Renew, !b.Renew},
		{"WithWait", given(a.Wait, a.Wait >= 0), given(b.Wait, b.Wait >= 0)},
		{"WithNodeTimeout", a.NodeTimeout, b.NodeTimeout},
		{"WithDrift", a.Drift, b.Drift},
		{"WithRestartGuard", given(a.MaxTTL, a.MaxTTL > 0), given(b.MaxTTL, b.MaxTTL > 0)},
		{"WithMaxHold", given(a.MaxHold, a.MaxHold > 0), given(b.MaxHold, b.MaxHold > 0)},
		{"WithOwner", a.Owner, b.Owner},
	} {
		if o.a != o.b {
			return fmt.Sprintf("%s is %v and %v", o.name, o.a, o.b)
		}
	}
	return ""
}

// given formats a duration for an error.
func given(d time.Duration, set bool) any {
	if !set {
		return "not set"
	}
	return d
}

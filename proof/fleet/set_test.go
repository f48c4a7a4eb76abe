package fleet

import "testing"

// A checker that cannot fail proves nothing.
func TestIsSetAcceptsOnlyLinearizableHistories(t *testing.T) {
	const n, first = 2, 16 // many ids
	adds := func(id int, called, returned int64, ok bool) SetCall {
		return SetCall{Adds: true, ID: id, Called: called, Returned: returned, OK: ok}
	}
	size := func(size int, called, returned int64) SetCall {
		return SetCall{Size: size, Called: called, Returned: returned, OK: true}
	}
	for what, tt := range map[string]struct {
		calls []SetCall
		good  bool
	}{
		"one after the other":             {[]SetCall{size(0, 1, 2), adds(0, 3, 4, true), size(1, 5, 6), adds(1, 7, 8, true), size(n, 9, 10)}, true},
		"an id twice counts once":         {[]SetCall{adds(0, 1, 2, true), adds(0, 3, 4, true), size(1, 5, 6)}, true},
		"a failed Done counts later":      {[]SetCall{adds(0, 1, 2, false), size(0, 3, 4), size(1, 5, 6)}, true},
		"a failed Count is ignored":       {[]SetCall{adds(0, 1, 2, true), {Called: 3, Returned: 4}}, true},
		"an open latch counts no more":    {[]SetCall{adds(0, 1, 2, true), adds(1, 3, 4, true), adds(2, 5, 6, true), size(n, 7, 8)}, true},
		"an id counts twice":              {[]SetCall{adds(0, 1, 2, true), adds(0, 3, 4, true), size(2, 5, 6)}, false},
		"an id is lost":                   {[]SetCall{adds(0, 1, 2, true), size(0, 3, 4)}, false},
		"a failed Done counts, and stops": {[]SetCall{adds(0, 1, 2, false), size(1, 3, 4), size(0, 5, 6)}, false},
		"opened by nobody":                {[]SetCall{adds(0, 1, 2, true), size(n, 3, 4)}, false},
		"open, and closed again":          {[]SetCall{adds(0, 1, 2, true), adds(1, 3, 10, true), size(n, 4, 5), size(1, 6, 7)}, false},
	} {
		many := make([]SetCall, len(tt.calls))
		for i, c := range tt.calls {
			c.ID += first
			many[i] = c
		}
		if few, many := IsSet(n, tt.calls), IsSet(n, many); few != tt.good || many != tt.good {
			t.Errorf("%s: %v, and with many ids %v, want %v", what, few, many, tt.good)
		}
	}
}

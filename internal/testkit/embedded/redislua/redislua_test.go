package redislua

import (
	"fmt"
	"sync"
	"testing"
)

// Interpreters share compiled sources.
func TestInterpretersRunOneSourceAtOnce(t *testing.T) {
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			in := New()
			for j := range 50 {
				source := fmt.Sprintf("local function twice(n) return n * 2 end\nlocal t = {}\nfor i = 1, #ARGV do t[i] = twice(ARGV[i]) .. string.rep('x', %d) end\nreturn t[1]", j)
				want := fmt.Sprintf("$%d\r\n%d", len(fmt.Sprint(2*i))+j, 2*i)
				if got := string(in.Run(source, nil, []string{fmt.Sprint(i)})); got[:len(want)] != want {
					t.Errorf("interpreter %d, source %d: %q, want %q", i, j, got, want)
				}
			}
		})
	}
	all.Wait()
}

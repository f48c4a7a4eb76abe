package promlock_test

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock"
	promlock "github.com/quorumlock/quorumlock/contrib/prometheus"
)

// A program gives the Observer to its client, and serves the registry with promhttp. Here
// connect stands for redlock.Dial.
func Example() {
	// or prometheus.DefaultRegisterer
	registry := prometheus.NewRegistry()
	observer, err := promlock.New(registry, promlock.WithLockNames()) // this program has few locks
	if err != nil {
		fmt.Println(err)
		return
	}
	client, stop := connect(quorumlock.WithObserver(observer))
	defer stop()

	err = quorumlock.Do(context.Background(), client.Mutex("invoices"), func(context.Context) error { return nil })
	fmt.Println(err)
	families, err := registry.Gather()
	for _, f := range families {
		if f.GetName() == "quorumlock_hold_duration_seconds" {
			fmt.Println(f.GetName(), f.Metric[0].Histogram.GetSampleCount(), f.Metric[0].Label[0].GetValue())
		}
	}
	fmt.Println(err)
	// Output:
	// <nil>
	// quorumlock_hold_duration_seconds 1 invoices
	// <nil>
}

package main

import (
	"context"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/quorumlock/quorumlock/examples/internal/try"
	"github.com/quorumlock/quorumlock/redlock"
)

func TestOneRequestACustomer(t *testing.T) {
	try.Main(func() {
		client, err := redlock.Dial(os.Args[1:])
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close() //nolint:errcheck // the test has ended
		ask := func(customer string, work func(context.Context) error) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			serve(client, work)(w, httptest.NewRequest("POST", "/charge?customer="+customer, nil))
			return w
		}
		first := ask("42", func(ctx context.Context) error {
			if w := ask("42", charge); w.Code != 409 || w.Header().Get("Retry-After") == "" {
				t.Errorf("a second request of the customer: status %d, Retry-After %q, want 409 and when to retry", w.Code, w.Header().Get("Retry-After"))
			}
			if w := ask("43", charge); w.Code != 200 {
				t.Errorf("a request of another customer: status %d, want 200", w.Code)
			}
			return charge(ctx)
		})
		if first.Code != 200 || first.Body.String() != "charged: <nil>\n" {
			t.Errorf("the first request: %d %q, want 200", first.Code, first.Body)
		}
		if w := ask("42", charge); w.Code != 200 {
			t.Errorf("a request after the first is done: status %d, want 200", w.Code)
		}
	})
}

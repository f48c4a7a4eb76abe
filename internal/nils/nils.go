// Package nils finds arguments that are nil though they do not compare equal to nil.
package nils

import "reflect"

// Is reports whether v is nil, or an interface with a nil pointer, such as a *redlock.Mutex that was never made.
func Is(v any) bool {
	if v == nil {
		return true
	}
	r := reflect.ValueOf(v)
	return r.Kind() == reflect.Pointer && r.IsNil()
}

package settings

import "reflect"

// IsNil reports whether v is nil, or an interface with a nil pointer, such as a nil *redlock.Mutex.
func IsNil(v any) bool {
	if v == nil {
		return true
	}
	r := reflect.ValueOf(v)
	return r.Kind() == reflect.Pointer && r.IsNil()
}

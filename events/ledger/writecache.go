package ledger

import (
	"fmt"
	"reflect"
	"sync"
	"time"
	"unsafe"

	"github.com/nats-io/nats-server/v2/server"
)

// writeCacheFor is how long a host keeps a block of output in memory after it
// was written.
const writeCacheFor = 250 * time.Millisecond

// shortenWriteCache makes the server give the blocks of a segment back soon
// after they were written. By itself it keeps each for ten seconds, in case of
// reads: a flood then holds all that it wrote in that time, hundreds of
// megabytes. No option says so, hence this reach into the server, held by a
// test; where a field is not what it was, nothing is changed and the error says
// which. See docs/decisions/0011-write-cache.md.
func shortenWriteCache(acc *server.Account, stream string) error {
	js, err := pointee(reflect.ValueOf(acc).Elem(), "js")
	if err != nil {
		return err
	}
	mu, err := lockOf(js)
	if err != nil {
		return err
	}
	mu.RLock()
	defer mu.RUnlock()
	streams := js.FieldByName("streams")
	if streams.Kind() != reflect.Map {
		return fmt.Errorf("the server's %s has no streams", js.Type())
	}
	s := streams.MapIndex(reflect.ValueOf(stream))
	if s.Kind() != reflect.Pointer || s.IsNil() {
		return fmt.Errorf("the server has no stream %s", stream)
	}
	fs, err := pointee(s.Elem(), "store")
	if err != nil {
		return err
	}
	return setCacheExpire(fs)
}

func setCacheExpire(fs reflect.Value) error {
	mu, err := lockOf(fs)
	if err != nil {
		return err
	}
	cfg := fs.FieldByName("fcfg")
	if cfg.Kind() != reflect.Struct {
		return fmt.Errorf("the server's %s has no settings", fs.Type())
	}
	expire := cfg.FieldByName("CacheExpire")
	if !expire.IsValid() || expire.Type() != reflect.TypeFor[time.Duration]() {
		return fmt.Errorf("the server's %s has no cache time", cfg.Type())
	}
	mu.Lock()
	defer mu.Unlock()
	*(*time.Duration)(unsafe.Pointer(expire.UnsafeAddr())) = writeCacheFor
	return nil
}

// pointee is the struct that a pointer, or an interface with a pointer in it,
// refers to.
func pointee(v reflect.Value, field string) (reflect.Value, error) {
	f := v.FieldByName(field)
	if f.Kind() == reflect.Interface {
		f = f.Elem()
	}
	if f.Kind() != reflect.Pointer || f.IsNil() || f.Elem().Kind() != reflect.Struct {
		return reflect.Value{}, fmt.Errorf("the server's %s has no %s", v.Type(), field)
	}
	return f.Elem(), nil
}

func lockOf(v reflect.Value) (*sync.RWMutex, error) {
	f := v.FieldByName("mu")
	if !f.IsValid() || f.Type() != reflect.TypeFor[sync.RWMutex]() {
		return nil, fmt.Errorf("the server's %s has no lock", v.Type())
	}
	return (*sync.RWMutex)(unsafe.Pointer(f.UnsafeAddr())), nil
}

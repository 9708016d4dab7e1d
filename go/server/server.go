// Package server serves HTTP requests so that as many as can be answered in time are, whatever else arrives.
//
// Each route has a goal. A request is handed to a worker, a thread of libstewardserver, which runs the handler from
// beginning to end: what the thread computes meanwhile is exactly what the request costs, and where Steward's daemon
// runs, workers that serve accepted requests have CPU time reserved. What a handler has other goroutines do is not
// measured.
//
//	promises, err := server.Start(server.Route{
//		Path: "/search", ResponseTime: 100 * time.Millisecond, CPU: 0.4, Otherwise: server.Refuse,
//	})
//	http.ListenAndServe(":8080", promises.Handler(mux))
//
// It is built with cgo and needs steward_server.h and libstewardserver, which `make install` puts in place:
//
//	CGO_CFLAGS=$(pkg-config --cflags steward-server) CGO_LDFLAGS=$(pkg-config --libs steward-server) go build
package server

/*
#cgo LDFLAGS: -lstewardserver
#include <stdlib.h>
#include "bridge.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"log"
	"net/http"
	"runtime"
	"runtime/cgo"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// Otherwise is what becomes of a request that cannot be accepted, because all that can be served in time have been.
type Otherwise uint32

const (
	// BestEffort has it served when there is nothing better to do.
	BestEffort Otherwise = C.STEWARD_SERVER_BEST_EFFORT
	// Refuse has it answered with 503 and Retry-After, if it cannot be answered in time anyway.
	Refuse Otherwise = C.STEWARD_SERVER_REFUSE
	// Queue has it wait for its turn; its response time counts from its arrival.
	Queue Otherwise = C.STEWARD_SERVER_QUEUE
)

// Route is what is wanted of requests whose path is Path, or begins with it by whole segments.
type Route struct {
	Path string
	// ResponseTime is within which time a request is to be answered, from its arrival: 1 ms to an hour.
	ResponseTime time.Duration
	// CPU is the part of the machine's CPU time that these requests may be promised, above 0 and below 1.
	CPU float64
	// Otherwise is what becomes of requests beyond that.
	Otherwise Otherwise
	// Cost is what a request costs as far as known; 0 if it is not known: it is measured.
	Cost time.Duration
}

// Settings are how a server is set up. Zeros stand for what the library takes by itself.
type Settings struct {
	// Socket is where the daemon listens. NoDaemon has nothing reserved.
	Socket   string
	NoDaemon bool
	// CPUs is how many the server may use; otherwise all.
	CPUs int
	// Workers that serve what is not accepted, and all where nothing can be reserved.
	BestEffortWorkers, PlainWorkers int
	// WaitingMax is how many requests may wait; otherwise 4096.
	WaitingMax int
	// Log is told what the server has to say, such as that the daemon does not run; the standard logger unless set. The
	// first server of a process decides.
	Log func(sentence string)
}

// Server serves requests; it may be used by several goroutines.
type Server struct {
	mutex  sync.RWMutex
	handle *C.struct_steward_server
	// The longest path first.
	paths []path
}

type path struct {
	name  string
	route int
}

var (
	logOnce sync.Once
	say     = func(sentence string) { log.Print(sentence) }
)

//export stewardServerSays
func stewardServerSays(sentence *C.char) {
	say(C.GoString(sentence))
}

// Start starts a server with these routes, and all else as the library takes it by itself.
func Start(routes ...Route) (*Server, error) {
	return StartWith(Settings{}, routes...)
}

// StartWith starts a server with these settings and routes. The error says what is wrong with them.
func StartWith(settings Settings, routes ...Route) (*Server, error) {
	logOnce.Do(func() {
		if settings.Log != nil {
			say = settings.Log
		}
		C.steward_server_bridge_log()
	})
	count := C.size_t(len(routes))
	goals := (*C.struct_steward_server_goal)(C.calloc(count+1, C.sizeof_struct_steward_server_goal))
	defer C.free(unsafe.Pointer(goals))
	server := &Server{}
	for index, goal := range unsafe.Slice(goals, len(routes)) {
		goal = routes[index].goal()
		goal.route = C.CString(routes[index].Path)
		defer C.free(unsafe.Pointer(goal.route))
		unsafe.Slice(goals, len(routes))[index] = goal
		server.paths = append(server.paths, path{routes[index].Path, index})
	}
	sort.SliceStable(server.paths, func(i, j int) bool {
		return len(server.paths[i].name) > len(server.paths[j].name)
	})
	set := C.struct_steward_server_settings{
		cpus:                C.uint32_t(settings.CPUs),
		best_effort_workers: C.uint32_t(settings.BestEffortWorkers),
		plain_workers:       C.uint32_t(settings.PlainWorkers),
		waiting_max:         C.uint32_t(settings.WaitingMax),
	}
	if settings.Socket != "" || settings.NoDaemon {
		set.socket_path = C.CString(settings.Socket)
		defer C.free(unsafe.Pointer(set.socket_path))
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if code := C.steward_server_start(goals, count, &set, &server.handle); code != C.STEWARD_SERVER_OK {
		return nil, lastError()
	}
	return server, nil
}

func (route Route) goal() C.struct_steward_server_goal {
	return C.struct_steward_server_goal{
		response_time_ns: C.uint64_t(max(route.ResponseTime, 0)),
		cpu:              C.double(route.CPU),
		cost_ns:          C.uint64_t(max(route.Cost, 0)),
		otherwise:        C.uint32_t(route.Otherwise),
	}
}

// lastError is that of the calling thread, to which its goroutine has to be locked.
func lastError() error {
	return errors.New("steward: " + C.GoString(C.steward_server_last_error()))
}

// SetGoal changes the goal of the route of that path; requests that were let in keep what they were promised.
func (server *Server) SetGoal(route Route) error {
	for _, path := range server.paths {
		if path.name == route.Path {
			goal := route.goal()
			return server.call(func(handle *C.struct_steward_server) C.int {
				return C.int(C.steward_server_set_goal(handle, C.size_t(path.route), &goal))
			})
		}
	}
	return fmt.Errorf("steward: there is no route %s: give it a goal first", route.Path)
}

// call calls the library unless the server is closed.
func (server *Server) call(body func(*C.struct_steward_server) C.int) error {
	server.mutex.RLock()
	defer server.mutex.RUnlock()
	if server.handle == nil {
		return errors.New("steward: the server is closed")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if body(server.handle) < 0 {
		return lastError()
	}
	return nil
}

// Close lets no request in any more, waits until those that were let in have been served, at most for so long, and frees
// the server. The error says how many have not been.
func (server *Server) Close(timeout time.Duration) error {
	server.mutex.Lock()
	handle := server.handle
	server.handle = nil
	server.mutex.Unlock()
	if handle == nil {
		return nil
	}
	left := C.steward_server_close(handle, C.uint64_t(max(timeout, 0)))
	C.steward_server_free(handle)
	if left > 0 {
		return fmt.Errorf("steward: %d requests were not served in %v", int(left), timeout)
	}
	return nil
}

// Page is what there is to see, anew every two seconds in a browser: accepted, met, missed, refused, N, Cavg and Cmax of each route. JSON for a request that
// accepts that or asks for ?json, else a table. Mount it where you like: whoever can reach it sees it.
func (server *Server) Page() http.Handler {
	return http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		isJSON := request.URL.RawQuery == "json" ||
			strings.Contains(request.Header.Get("Accept"), "application/json")
		var page *C.char
		err := server.call(func(handle *C.struct_steward_server) C.int {
			return C.int(C.steward_server_page(handle, C.bool(isJSON), &page))
		})
		if err != nil {
			http.Error(writer, err.Error(), http.StatusServiceUnavailable)
			return
		}
		defer C.steward_server_free_text(page)
		kind := "application/json"
		if !isJSON {
			kind = "text/plain; charset=utf-8"
			writer.Header().Set("Refresh", "2")
		}
		writer.Header().Set("Cache-Control", "no-store")
		writer.Header().Set("Content-Type", kind)
		_, _ = writer.Write([]byte(C.GoString(page)))
	})
}

// find gives the route with the longest path that this one is or begins with, by whole segments.
func (server *Server) find(of string) (int, bool) {
	for _, path := range server.paths {
		rest, isFor := strings.CutPrefix(of, strings.TrimSuffix(path.name, "/"))
		if isFor && (rest == "" || rest[0] == '/') {
			return path.route, true
		}
	}
	return 0, false
}

// What a job is at: whoever takes it from waiting decides whether it is done.
const (
	waiting int32 = iota
	begun
	givenUp
)

// job is a request that is served by a worker, while its own goroutine waits.
type job struct {
	state    atomic.Int32
	serve    func()
	ended    chan struct{}
	panicked any
}

//export stewardServerJob
func stewardServerJob(data unsafe.Pointer) C.int {
	handle := cgo.Handle(uintptr(data))
	job := handle.Value().(*job)
	handle.Delete()
	if !job.state.CompareAndSwap(waiting, begun) {
		return C.STEWARD_SERVER_NOT_BEGUN
	}
	return job.run()
}

// run serves the request; its panic goes to the goroutine that waits, for none may pass through C.
func (job *job) run() (outcome C.int) {
	outcome = C.STEWARD_SERVER_FAILED
	defer close(job.ended)
	defer func() { job.panicked = recover() }()
	job.serve()
	return C.STEWARD_SERVER_DONE
}

// Handler has the requests of a handler served in time. Requests for paths without a goal are let through as they are.
//
// A request that is refused is answered with 503 and Retry-After. When the client goes before its request has begun, it
// uses up nothing; after that, the handler sees it in the request's context, as ever. A panic of the handler is the
// caller's, as ever.
func (server *Server) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		route, has := server.find(request.URL.Path)
		if !has {
			next.ServeHTTP(writer, request)
			return
		}
		job := &job{ended: make(chan struct{})}
		job.serve = func() { next.ServeHTTP(writer, request) }
		handle := cgo.NewHandle(job)
		var retryAfterNs C.uint64_t
		err := server.call(func(server *C.struct_steward_server) C.int {
			return C.int(C.steward_server_bridge_serve(server, C.size_t(route), C.uintptr_t(handle), &retryAfterNs))
		})
		if err != nil {
			handle.Delete()
			seconds := (time.Duration(retryAfterNs) + time.Second - 1) / time.Second
			writer.Header().Set("Retry-After", strconv.Itoa(int(max(seconds, 1))))
			http.Error(writer, err.Error(), http.StatusServiceUnavailable)
			return
		}
		select {
		case <-job.ended:
		case <-request.Context().Done():
			if job.state.CompareAndSwap(waiting, givenUp) {
				return
			}
			// The handler uses the writer until it has ended.
			<-job.ended
		}
		if job.panicked != nil {
			panic(job.panicked)
		}
	})
}

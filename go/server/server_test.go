package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// warnings counts what says that nothing is reserved.
var warnings atomic.Int32

func count(sentence string) {
	if strings.Contains(sentence, "no reservations") {
		warnings.Add(1)
	}
}

// twoIn400Seconds accepts two requests for as long as a test takes.
func twoIn400Seconds(otherwise Otherwise) Route {
	return Route{Path: "/a", ResponseTime: 400 * time.Second, CPU: 0.6, Cost: 100 * time.Second, Otherwise: otherwise}
}

func start(t *testing.T, workers int, route Route) *Server {
	t.Helper()
	settings := Settings{NoDaemon: true, CPUs: 1, PlainWorkers: workers, Log: count}
	server, err := StartWith(settings, route)
	if err != nil {
		t.Fatal(err)
	}
	return server
}

type seen struct {
	Routes []struct {
		Accepted  int `json:"accepted"`
		Met       int `json:"met"`
		Refused   int `json:"refused"`
		Panicked  int `json:"panicked"`
		Abandoned int `json:"abandoned"`
		InHand    int `json:"in_hand"`
	} `json:"routes"`
	Unreserved string `json:"unreserved"`
}

func page(t *testing.T, server *Server) seen {
	t.Helper()
	recorder := httptest.NewRecorder()
	server.Page().ServeHTTP(recorder, httptest.NewRequest("GET", "/steward?json", nil))
	var seen seen
	if err := json.Unmarshal(recorder.Body.Bytes(), &seen); err != nil {
		t.Fatal(err, recorder.Body.String())
	}
	return seen
}

func until(t *testing.T, what string, isSo func() bool) {
	t.Helper()
	for begin := time.Now(); !isSo(); time.Sleep(time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Fatal(what, "did not come about")
		}
	}
}

func get(t *testing.T, url string) (int, string, http.Header) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body), response.Header
}

func TestRequestsAreServedAndThoseBeyondAreRefusedWithRetryAfter(t *testing.T) {
	server := start(t, 1, twoIn400Seconds(Refuse))
	mux := http.NewServeMux()
	mux.HandleFunc("/a", func(writer http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(writer, "served") })
	mux.HandleFunc("/other", func(writer http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(writer, "no goal") })
	mux.Handle("/steward", server.Page())
	listening := httptest.NewServer(server.Handler(mux))
	defer listening.Close()
	for range [2]int{} {
		if status, body, _ := get(t, listening.URL+"/a"); status != 200 || body != "served" {
			t.Fatal(status, body)
		}
	}
	status, body, header := get(t, listening.URL+"/a")
	if status != 503 || header.Get("Retry-After") == "" || !strings.Contains(body, "try again in") {
		t.Fatal(status, body, header)
	}
	if _, body, _ := get(t, listening.URL+"/other"); body != "no goal" {
		t.Fatal(body)
	}
	if _, body, _ := get(t, listening.URL+"/steward"); !strings.HasPrefix(body, "ROUTE") {
		t.Fatal(body)
	}
	// The route of the longest path that this one begins with.
	if status, _, _ := get(t, listening.URL+"/a/b"); status != 503 {
		t.Fatal(status)
	}
	if status, _, _ := get(t, listening.URL+"/ab"); status != 404 {
		t.Fatal(status)
	}
	if route := page(t, server).Routes[0]; route.Met != 2 || route.Refused != 2 {
		t.Fatal(route)
	}
	if err := server.Close(time.Minute); err != nil {
		t.Fatal(err)
	}
	if status, _, _ := get(t, listening.URL+"/a"); status != 503 {
		t.Fatal("a server that is closed answered", status)
	}
}

func TestManyRequestsAtOnceAreAllServed(t *testing.T) {
	server := start(t, 3, Route{Path: "/", ResponseTime: 10 * time.Minute, CPU: 0.5})
	var served atomic.Int32
	handler := server.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) }))
	var all sync.WaitGroup
	for range [20]int{} {
		all.Add(1)
		go func() {
			defer all.Done()
			for range [20]int{} {
				handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
			}
		}()
	}
	all.Wait()
	if served.Load() != 400 {
		t.Fatal(served.Load())
	}
	if err := server.Close(time.Minute); err != nil {
		t.Fatal(err)
	}
}

func TestAPanicIsTheCallersAndEndsNothingElse(t *testing.T) {
	server := start(t, 1, twoIn400Seconds(BestEffort))
	mistake := errors.New("a mistake")
	handler := server.Handler(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		if request.URL.RawQuery == "panic" {
			panic(mistake)
		}
	}))
	func() {
		defer func() {
			if got := recover(); got != mistake {
				t.Error(got)
			}
		}()
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/a?panic", nil))
	}()
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/a", nil))
	if err := server.Close(time.Minute); err != nil {
		t.Fatal(err)
	}
}

func TestAClientThatGoesAwayUsesUpNothingIfItsRequestHasNotBegun(t *testing.T) {
	server := start(t, 1, twoIn400Seconds(BestEffort))
	gate := make(chan struct{})
	handler := server.Handler(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		if request.URL.RawQuery == "waits" {
			<-gate
		}
	}))
	ended := make(chan struct{})
	go func() {
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/a?waits", nil))
		close(ended)
	}()
	until(t, "the first request", func() bool { return page(t, server).Routes[0].InHand == 1 })
	patience, leave := context.WithCancel(context.Background())
	gone := make(chan struct{})
	go func() {
		request := httptest.NewRequest("GET", "/a", nil).WithContext(patience)
		handler.ServeHTTP(httptest.NewRecorder(), request)
		close(gone)
	}()
	until(t, "the second request", func() bool { return page(t, server).Routes[0].InHand == 2 })
	// It waits for the only worker, and does so no more.
	leave()
	<-gone
	close(gate)
	<-ended
	until(t, "the end of both", func() bool { return page(t, server).Routes[0].InHand == 0 })
	if route := page(t, server).Routes[0]; route.Abandoned != 1 || route.Met != 1 {
		t.Fatal(route)
	}
	// What it was accepted with is there again.
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/a", nil))
	if err := server.Close(time.Minute); err != nil {
		t.Fatal(err)
	}
}

func TestARequestThatDoesNotEndIsCountedWhenTheServerCloses(t *testing.T) {
	server := start(t, 1, twoIn400Seconds(BestEffort))
	gate := make(chan struct{})
	handler := server.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-gate }))
	go handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/a", nil))
	until(t, "the request", func() bool { return page(t, server).Routes[0].InHand == 1 })
	err := server.Close(10 * time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "1 requests were not served") {
		t.Fatal(err)
	}
	close(gate)
}

func TestGoalsThatCannotBeHeldAreRefusedWithWhatToDo(t *testing.T) {
	for _, wrong := range []struct {
		route Route
		says  string
	}{
		{Route{Path: "/a", CPU: 0.5}, "a response time of 0ns cannot be held"},
		{Route{Path: "/a", CPU: 0.95, ResponseTime: time.Second}, "may be promised"},
		{Route{Path: "/a", CPU: 0.5, ResponseTime: time.Second, Otherwise: 9}, "otherwise is 9"},
	} {
		if _, err := Start(wrong.route); err == nil || !strings.Contains(err.Error(), wrong.says) {
			t.Fatal(err)
		}
	}
	if _, err := Start(); err == nil || !strings.Contains(err.Error(), "no route has a goal") {
		t.Fatal(err)
	}
	server := start(t, 1, twoIn400Seconds(BestEffort))
	if err := server.SetGoal(Route{Path: "/a", CPU: 0.5}); err == nil {
		t.Fatal("a response time of 0 is in force")
	}
	if err := server.SetGoal(Route{Path: "/b", CPU: 0.5, ResponseTime: time.Second}); err == nil {
		t.Fatal("a route without a goal has another one")
	}
	if err := server.SetGoal(Route{Path: "/a", CPU: 0.5, ResponseTime: time.Second}); err != nil {
		t.Fatal(err)
	}
	if err := server.Close(time.Minute); err != nil {
		t.Fatal(err)
	}
}

func TestWithoutADaemonAPlainPoolServesAndItIsSaidOnce(t *testing.T) {
	before := warnings.Load()
	route := twoIn400Seconds(BestEffort)
	server, err := StartWith(Settings{Socket: t.TempDir() + "/nobody", CPUs: 1, Log: count}, route)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "that nothing is reserved", func() bool {
		return strings.HasPrefix(page(t, server).Unreserved, "cannot reach stewardd at")
	})
	until(t, "the warning", func() bool { return warnings.Load() > before })
	handler := server.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/a", nil))
	if err := server.Close(time.Minute); err != nil {
		t.Fatal(err)
	}
	if warnings.Load() != before+1 {
		t.Fatal(warnings.Load() - before)
	}
}

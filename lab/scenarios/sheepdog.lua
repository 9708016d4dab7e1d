-- The clients of the sheepdog scenarios for wrk: the connections of its first thread ask for the static page, those of its second for the CGI program.
local paths = { "/page.html", "/cgi-bin/page" }
local threads = 0

function setup(thread)
   threads = threads + 1
   thread:set("path", paths[threads])
end

function init()
   wrk.path = path
   wrk.headers["Connection"] = "close"
end
